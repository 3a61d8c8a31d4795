"""Evaluation of proxies: rank correlations, cards and speed."""
