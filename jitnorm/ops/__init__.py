"""The public ops, one module a family."""
