"""Runs the passes of one network at a time."""
