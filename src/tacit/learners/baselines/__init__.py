"""Baselines: A-GEM, centralised training, RanPAC, FeCAM (NOT PRIVATE); joint training and fine-tuning with DP-SGD."""
