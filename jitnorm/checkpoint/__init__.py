"""Quantizes checkpoints: safetensors files in, files that inference engines load out."""
