"""How a public data set becomes a stream of tasks."""
