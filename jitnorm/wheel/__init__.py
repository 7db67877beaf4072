"""Builds wheels of kernels for one target, which jitnorm finds wherever they are installed."""
