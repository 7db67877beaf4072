"""Fuzzing, guided by coverage, of what reads files that others can have written."""
