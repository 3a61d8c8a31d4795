"""Measurements of the speed of scoring, and of the agreement between ways of running."""
