"""Small models of random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from support import TINY_LLAMA
from transformers import LlamaConfig, LlamaForCausalLM


def make_llama(folder: Path, seed: int = 0, **settings: Any) -> None:
    """Writes one."""
    torch.manual_seed(seed)
    LlamaForCausalLM(LlamaConfig(**TINY_LLAMA | settings)).eval().save_pretrained(folder)
