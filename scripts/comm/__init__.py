"""jitnorm.comm on all ranks of a machine: how long calls take; how it copes with random calls, skew and failures."""
