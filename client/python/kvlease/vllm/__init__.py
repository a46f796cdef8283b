"""vLLM on pages of kvlease.

    vllm serve MODEL --kv-transfer-config \\
        '{"kv_connector": "KvleaseConnector", "kv_role": "kv_both"}'

Processes of a tenant that run the same weights in the same way find each other's KV cache. Where it
can be, the blocks of vLLM's KV cache are pages of kvlease themselves: a block's id is a page's
number, and nothing is copied. Elsewhere blocks are copied (docs/integrate/vllm.md).

Where the entry points of packages aren't read, because VLLM_PLUGINS leaves kvlease out,
"kv_connector_module_path": "kvlease.vllm" names the connector instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvlease.vllm.connector import KvleaseConnector

__all__ = ["KvleaseConnector"]


def __getattr__(name: str) -> Any:
    """vLLM is only needed for the connector: `python -m kvlease.vllm` does without."""
    if name != "KvleaseConnector":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kvlease.vllm.connector import KvleaseConnector  # noqa: PLC0415

    return KvleaseConnector
