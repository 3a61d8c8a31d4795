"""NASI."""
