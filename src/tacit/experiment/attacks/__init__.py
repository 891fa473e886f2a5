"""Attacks on the releases of runs and sweeps."""
