"""Drawings of plans: SVG, and lines of text."""
