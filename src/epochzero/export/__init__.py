"""From a winner to a product: code that stands alone, weights, ONNX that was checked, and a model card.

made = export(Subject.of(space, arch), Path("product"))
"""

from epochzero.export.product import Exported, export
from epochzero.export.subject import Subject

__all__ = ["Exported", "Subject", "export"]
