"""Configurations: typed sections, presets and files, and what a call changes in them."""
