"""How a learner stands up to small changes of its inputs: attacks that find them, certificates that exclude them."""
