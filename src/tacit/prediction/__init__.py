"""Predictions of released models on new records: files, data frames and arrays."""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.prediction.model import Model, Predictions, load

__all__ = ["Model", "Predictions", "load"]

__getattr__, __dir__ = attach(__name__, __file__)
