"""Training of networks: single ones on images, supernets, and populations."""
