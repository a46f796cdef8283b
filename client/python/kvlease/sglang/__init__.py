"""SGLang with a KV cache that other engines share, and that survives restarts.

    sglang serve --model-path MODEL --enable-hierarchical-cache --hicache-storage-backend dynamic \\
        --hicache-storage-backend-extra-config \\
        '{"backend_name": "kvlease", "module_path": "kvlease.sglang", "class_name": "Storage",
          "interface_v1": 1, "hicache_storage_pass_prefix_keys": true}'

SGLang copies pages of its KV cache to its host memory (HiCache), and this backend copies them on to
pages of kvleased, where other engines of the tenant find them (docs/integrate/sglang.md).

A kvleased that is away, full or slow costs hits, nothing else.
"""

from kvlease._engine import Stats
from kvlease.sglang.linker import Linker
from kvlease.sglang.options import Options
from kvlease.sglang.storage import Storage

__all__ = ["Linker", "Options", "Stats", "Storage"]
