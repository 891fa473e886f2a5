"""Sweeps: one run for each cell of a grid, and the tables that compare them."""
