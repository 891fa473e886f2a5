"""A run: the task loop, its folder, evaluation, progress and workers."""
