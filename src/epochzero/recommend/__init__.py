"""Recommenders: click tables, NASRec spaces, warm-up, training, export."""
