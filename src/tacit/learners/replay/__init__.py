"""Learners with an episodic memory: DP-CL, DP-AGEM, DP-ER and the naive Gaussian mechanism."""
