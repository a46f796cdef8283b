"""What processes of LMCache are forked with."""

import os

os.environ["LMCACHE_TRACK_USAGE"] = "false"  # it would send statistics to its makers

from support import forks

# LMCache's engine imports vLLM's hashes where it finds them.
forks.set_forkserver_preload(
    [
        "lmcache.v1.cache_engine",
        "lmcache.v1.distributed.storage_manager",
        "vllm.v1.core.kv_cache_utils",
        "kvlease.lmcache.backend",
    ]
)
