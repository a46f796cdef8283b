"""vLLM on pages of kvlease.

    vllm serve MODEL --kv-transfer-config \\
        '{"kv_connector": "KvleaseConnector", "kv_role": "kv_both"}'

The blocks of vLLM's KV cache become pages of kvlease, without a copy and without a patch of vLLM: a
block's id is a page's number. What one process has computed, every other one of the tenant finds
that runs the same weights in the same way (docs/ENGINES.md has the details, and what is refused).

Where the entry points of packages aren't read, because VLLM_PLUGINS leaves kvlease out,
"kv_connector_module_path": "kvlease.vllm" names the connector instead.
"""

from kvlease.vllm.connector import KvleaseConnector

__all__ = ["KvleaseConnector"]
