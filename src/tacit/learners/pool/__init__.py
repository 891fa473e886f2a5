"""A pool of learners that take turns (Hassanpour et al. 2022)."""
