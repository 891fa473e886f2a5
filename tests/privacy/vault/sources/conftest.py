"""Fixtures of the tests of sources."""

from support.data_sets import as_png, own_folders

__all__ = ["as_png", "own_folders"]
