"""The commands of `jitnorm`; `*_app` modules only declare their arguments."""
