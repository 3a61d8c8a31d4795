"""The code that experiments share."""
