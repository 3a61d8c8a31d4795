"""GPU kernels and the routines that use them. Optional: everything runs without them."""
