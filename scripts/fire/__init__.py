"""Attacks on the cache at random, one module each, and the runner that repeats them; see docs/reliability.md."""
