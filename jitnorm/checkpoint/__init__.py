"""Quantizes checkpoints: reads safetensors files and writes files that inference engines load."""
