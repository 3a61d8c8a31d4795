"""Objectives: one proxy, a combination of several, or several goals at once."""
