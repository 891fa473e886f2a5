"""A run: the task loop, its folder, evaluation, progress and workers.

`runner` starts or resumes a run, with one process for each seed (`workers`). `finite_and_endless` has the task loop of
a run, the table of what differs between finite and endless streams, and what `--resume` restores. `task_loop` of
`tacit.learners.base` has the life of one task, and says how an interrupted one is resumed.
"""
