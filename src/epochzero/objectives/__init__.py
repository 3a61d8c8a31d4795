"""Many scores into one."""
