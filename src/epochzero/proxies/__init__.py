"""Training-free scores, one file for each paper. A new proxy is a new file here."""
