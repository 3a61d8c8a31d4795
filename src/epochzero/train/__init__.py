"""Training networks for good."""
