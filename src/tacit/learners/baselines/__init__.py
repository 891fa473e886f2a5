"""Baselines: A-GEM and centralised training (NOT PRIVATE), joint training and fine-tuning with DP-SGD."""
