"""Training of recommenders, and their search."""
