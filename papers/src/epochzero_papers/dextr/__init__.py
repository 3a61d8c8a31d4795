"""Dextr."""
