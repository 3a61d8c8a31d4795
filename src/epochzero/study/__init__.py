"""A search: its task, its loop and its results."""
