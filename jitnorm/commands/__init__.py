"""What the commands of `jitnorm` do; `jitnorm.cli` only reads their arguments."""
