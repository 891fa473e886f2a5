"""The user's own private data, as a declaration describes it."""
