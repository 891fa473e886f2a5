"""Tools for the owner of private data: write a declaration, check it, and look at how private cells are read."""
