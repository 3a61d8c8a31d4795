"""Cards of proxies, made from their code, their file's docstring and tables of figures."""

from epochzero.evaluate.cards.card import Card, card, card_of
from epochzero.evaluate.cards.demands import Demands
from epochzero.evaluate.cards.explanation import Explanation
from epochzero.evaluate.cards.figures import Cost, Measured, Published

__all__ = ["Card", "Cost", "Demands", "Explanation", "Measured", "Published", "card", "card_of"]
