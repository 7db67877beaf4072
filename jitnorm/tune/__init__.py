"""`jitnorm tune` measures schedules on a GPU and chooses the fastest; only the commands import it."""
