"""Measurements of hardware: latency."""
