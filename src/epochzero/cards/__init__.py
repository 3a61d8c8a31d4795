"""What is known of each proxy, on a card: read from its code, its file's docstring, and the figures kept here."""

from epochzero.cards.card import Card, card
from epochzero.cards.demands import Demands
from epochzero.cards.explanation import Explanation
from epochzero.cards.figures import Cost, Measured, Published

__all__ = ["Card", "Cost", "Demands", "Explanation", "Measured", "Published", "card"]
