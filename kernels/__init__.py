"""Kernel sources and the generator that composes them: KernelConfig + Target -> Source."""
