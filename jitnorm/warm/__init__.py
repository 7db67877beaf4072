"""Warms the cache: finds which kernels a model or a list needs, and builds the missing ones ahead of time."""
