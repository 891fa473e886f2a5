"""Experiments: configuration, runner, run folder, presets, sweeps."""
