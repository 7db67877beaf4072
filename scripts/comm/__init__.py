"""jitnorm.comm on all ranks of a machine: how long calls take, and what random calls, skew and failures do to it."""
