"""Curves of the papers that need no training."""
