"""Search spaces of recommenders, one file each."""
