"""Benchmarks: compare every op's time with a copy of the same bytes and with other libraries. Needs torch."""
