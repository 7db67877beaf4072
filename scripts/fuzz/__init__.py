"""Differential fuzzing: random calls on tensors between guard bytes, compared with the reference byte for byte."""
