"""LMCache's L2 adapters, by the calls of `lmcache bench l2`: of files, of Redis, and kvlease's."""

from __future__ import annotations

import json
import os
import shutil
from functools import cache
from pathlib import Path

os.environ["LMCACHE_TRACK_USAGE"] = "false"  # it would send statistics to its makers

from argparse import Namespace

from lmcache.cli.commands.bench.l2_adapter_bench.data import (
    create_l1_memory_desc,
    make_aligned_tensor,
    make_memory_objects,
)
from lmcache.cli.commands.bench.l2_adapter_bench.runner import (
    _PLACEHOLDER_LAYOUT_DESC,
    _wait_load_finished,
    _wait_lookup_finished,
    _wait_store_finished,
)
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters import (
    create_l2_adapter,
    fs_native_l2_adapter,  # noqa: F401 - so that connect() needn't import them
    native_plugin_l2_adapter,  # noqa: F401
    resp_l2_adapter,  # noqa: F401
)
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config

from peers.copies.cache import PAGE_BYTES, Server, digests
from peers.copies.kvlease import Service as Kvleased
from peers.peer import TEXT_PAGES, free_port

_SECONDS = 5.0  # of a request. Not tuned.
_ALIGNMENT = 4096  # which the adapter of files needs


class Files:
    """Files of a file system in memory: no process keeps them."""

    def __init__(self, folder: Path) -> None:
        self.address = json.dumps({"type": "fs_native", "base_path": str(folder)})

    def start(self) -> None:
        """There is nothing to start."""

    kill = stop = start


class Redis(Server):
    """redis-server; LMCache's adapter is `resp`."""

    _options: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.address = json.dumps({"type": "resp", "host": "127.0.0.1", "port": port})
        program = os.environ.get("KVL_REDIS") or shutil.which("redis-server")
        if not program:
            raise RuntimeError("there is no redis-server here (KVL_REDIS names one)")
        command = [program, "--port", str(port), "--save", "", "--dir", str(folder)]
        super().__init__([*command, *self._options], port)


class RedisLog(Redis):
    """Redis with its append-only file, written to memory and synchronised each second."""

    _options = ("--appendonly", "yes", "--appendfsync", "everysec")


class Kvlease(Kvleased):
    """kvleased; the adapter is kvlease.lmcache."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.address = json.dumps(
            {
                "type": "native_plugin",
                "module_path": "kvlease.lmcache",
                "class_name": "Client",
                "adapter_params": {"socket": self.address},
            }
        )


class _Client:
    def __init__(self, address: str) -> None:
        buffer = make_aligned_tensor(2 * TEXT_PAGES * PAGE_BYTES, _ALIGNMENT)
        adapters = parse_args_to_l2_adapters_config(Namespace(l2_adapter=[address])).adapters
        self._adapter = create_l2_adapter(
            adapters[0], l1_memory_desc=create_l1_memory_desc(buffer, align_bytes=_ALIGNMENT)
        )
        objects = make_memory_objects(buffer, 2 * TEXT_PAGES, PAGE_BYTES, 0)
        self._sources, self._targets = objects[:TEXT_PAGES], objects[TEXT_PAGES:]
        self.pages = buffer.numpy().view("int16").reshape(2 * TEXT_PAGES, -1)
        self._keys = cache(
            lambda number: [ObjectKey(key, "kvlease-bench", 0) for key in digests(number)]
        )

    def store(self, number: int) -> None:
        task = self._adapter.submit_store_task(self._keys(number), self._sources)
        done = _wait_store_finished(self._adapter, [task], _SECONDS)
        if task not in done or not done[task].is_successful():
            raise RuntimeError("the adapter stores no page, or some of the pages")

    def find(self, number: int) -> int:
        keys = self._keys(number)
        task = self._adapter.submit_lookup_and_lock_task(keys, {0: _PLACEHOLDER_LAYOUT_DESC})
        found = _wait_lookup_finished(self._adapter, [task], _SECONDS)
        n_pages = sum(found[task].test(i) for i in range(TEXT_PAGES)) if task in found else 0
        self._adapter.submit_unlock(keys)
        return n_pages

    def load(self, number: int) -> None:
        keys = self._keys(number)
        task = self._adapter.submit_load_task(keys, self._targets)
        if task not in _wait_load_finished(self._adapter, [task], _SECONDS):
            raise TimeoutError("the adapter doesn't answer")


connect = _Client
