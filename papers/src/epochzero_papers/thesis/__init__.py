"""The thesis: cell topology, NESBS, HNAS."""
