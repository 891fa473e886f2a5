"""Fixtures of the tests of data sets."""

from support.data_sets import as_png, cut_short, idx_root, own_folders, real, toy

__all__ = ["as_png", "cut_short", "idx_root", "own_folders", "real", "toy"]
