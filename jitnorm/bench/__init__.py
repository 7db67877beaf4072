"""Benchmarks: the time of every op beside a copy of the same bytes, and beside other libraries. Needs torch."""
