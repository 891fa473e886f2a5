"""Learners that release noisy sums of features once and train nothing: cosine, moments, lifelong."""
