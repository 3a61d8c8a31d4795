"""What is known of each proxy, on a card: read from its code, its file's docstring, and the figures kept here."""

from epochzero.evaluate.cards.card import Card, card
from epochzero.evaluate.cards.demands import Demands
from epochzero.evaluate.cards.explanation import Explanation
from epochzero.evaluate.cards.figures import Cost, Measured, Published

__all__ = ["Card", "Cost", "Demands", "Explanation", "Measured", "Published", "card"]
