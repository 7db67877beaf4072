"""Advice for names of Hugging Face Hub models, which jitnorm never downloads."""

from __future__ import annotations

import re


def hint_of_hub(text: str) -> str:
    """The end of an error's message: how to download a model, if a text could be its name.

    Example:
        >>> hint_of_hub("Qwen/Qwen3-8B")
        '; a model of the Hugging Face Hub has to be downloaded first: hf download Qwen/Qwen3-8B --local-dir FOLDER'
        >>> hint_of_hub("/models/Qwen3-8B")
        ''
    """
    if not re.fullmatch(r"\w[\w.-]*/[\w.-]+", text):
        return ""
    return f"; a model of the Hugging Face Hub has to be downloaded first: hf download {text} --local-dir FOLDER"
