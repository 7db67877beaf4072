"""A demonstration: decoders shaped like Llama 3.1 8B and Qwen3 8B, with and without jitnorm."""
