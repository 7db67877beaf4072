"""Warming the cache: which kernels a model or a list needs, and building those that are missing ahead of time."""
