"""Fixtures of the tests of the owner's tools."""

from support.data_sets import cut_short, idx_root, own_folders, real

__all__ = ["cut_short", "idx_root", "own_folders", "real"]
