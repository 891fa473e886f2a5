"""Learners with one model for each task: routed experts and the PEFT ensemble."""
