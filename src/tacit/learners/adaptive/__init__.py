"""Learners that choose noise or records as they go, behind Rényi filters."""
