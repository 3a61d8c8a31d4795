"""Exports a network as a product: code that needs only torch, weights, checked ONNX, and a model card.

made = export(Subject.of(space, arch), Path("product"))
"""

from epochzero.export.product import Exported, export
from epochzero.export.subject import Subject

__all__ = ["Exported", "Subject", "export"]
