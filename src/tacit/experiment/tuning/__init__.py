"""Hyper-parameter tuning: on public data, on held-out tasks, or privately under one charge."""
