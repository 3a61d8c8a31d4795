"""Weights that recommenders of one space share."""
