"""llama-cpp-python with a KV cache that other processes share, and that survives restarts.

    from kvlease.llama import Llama
    llama = Llama("model.gguf", n_ctx=8192)

Llama is llama_cpp.Llama with all its arguments. Before it computes a prompt, it loads the longest
beginning that any process of the tenant has computed with the same model in the same way. After
that it saves its own (docs/integrate/llama.md has the conditions and refusals).

    python -m kvlease.llama serve --model model.gguf

is `python -m llama_cpp.server` with all its arguments, with such models (--help has those of
kvlease).

A kvleased that is away, full or slow costs hits, nothing else.
"""

from kvlease._engine import Stats
from kvlease.llama.engine import Llama
from kvlease.llama.store import Options

__all__ = ["Llama", "Options", "Stats"]
