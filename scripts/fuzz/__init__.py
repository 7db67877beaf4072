"""Differential fuzzing of calls: random ones, compared with the reference byte for byte, between guard bytes."""
