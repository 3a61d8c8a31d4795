"""Analyses of a network: the topology of its cell, its loss landscape, its features and its output curve."""
