"""What processes of LMCache are forked with."""

import os

os.environ["LMCACHE_TRACK_USAGE"] = "false"  # it would send statistics to its makers

from support import forks

forks.set_forkserver_preload(["lmcache.v1.distributed.storage_manager", "kvlease.lmcache"])
