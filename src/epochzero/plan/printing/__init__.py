"""Plans printed as stand-alone PyTorch source."""
