"""Kernels as wheels: built for one target, found by jitnorm wherever they are installed."""
