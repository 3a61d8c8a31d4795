"""Measurements of speed, and of agreement between ways of running."""
