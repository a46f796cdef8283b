"""LMCache's objects in pages of kvlease, for all its servers and engines on a host.

LMCache's server (multi-process mode) takes the class Client as an L2 adapter:

    {"type": "native_plugin", "module_path": "kvlease.lmcache", "class_name": "Client",
     "adapter_params": {"socket": "/run/kvlease/t/prod/sock"}}

Its engine inside another process takes kvlease.lmcache.backend.Backend as a storage plug-in
(docs/integrate/lmcache.md).

A kvleased that is away, full or slow costs hits, nothing else.
"""

from kvlease.lmcache.native import Client
from kvlease.lmcache.options import Options

__all__ = ["Client", "Options"]
