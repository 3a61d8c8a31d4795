"""Runs the passes of many plans side by side, as one merged plan."""
