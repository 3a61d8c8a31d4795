"""Runs the passes of any `nn.Module`."""
