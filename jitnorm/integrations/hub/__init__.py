"""Layers for the Hub's `kernels` package, which loads this folder by its path: ``LocalLayerRepository(hub.FOLDER)``."""

from pathlib import Path

from . import layers

FOLDER = Path(__file__).parent

__all__ = ["FOLDER", "layers"]
