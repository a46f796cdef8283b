"""An engine in small beside LMCache, as support.Engine runs it. Its model is a hash: the bytes of a
chunk depend on all tokens up to its end, and a token on the bytes of all chunks before it. So a
wrong byte shows as other tokens."""

from __future__ import annotations

import hashlib
import json
import logging
import random
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.cache_engine import LMCacheEngineBuilder
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.distributed.api import (
    GroupedObjectKeys,
    MemoryLayoutDesc,
    ObjectKey,
    PrefetchTaskSpec,
)
from lmcache.v1.distributed.config import (
    EvictionConfig,
    L1ManagerConfig,
    L1MemoryManagerConfig,
    StorageManagerConfig,
)
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
from lmcache.v1.distributed.storage_manager import StorageManager
from lmcache.v1.metadata import LMCacheMetadata

CHUNK_TOKENS = 16
CHUNK_BYTES = (512 << 10) - 512  # and a trailer: a page of 512 KiB
PAGE_BYTES = 512 << 10
SECONDS = 60.0


def l2_adapter(options: dict[str, Any]) -> str:
    """What a user gives as --l2-adapter."""
    return json.dumps(
        {
            "type": "native_plugin",
            "module_path": "kvlease.lmcache",
            "class_name": "Client",
            "adapter_params": options,
        }
    )


class Server:
    """LMCache's memory and its controllers, as its server has them."""

    def __init__(self, settings: dict[str, Any], options: dict[str, Any] | None) -> None:
        adapters = [] if options is None else [l2_adapter(options)]
        self._manager = StorageManager(
            StorageManagerConfig(
                l1_manager_config=L1ManagerConfig(
                    memory_config=L1MemoryManagerConfig(
                        size_in_bytes=128 << 20, use_lazy=False, align_bytes=4096
                    )
                ),
                eviction_config=EvictionConfig(eviction_policy="LRU"),
                l2_adapter_config=parse_args_to_l2_adapters_config(Namespace(l2_adapter=adapters)),
            )
        )
        self._layout = MemoryLayoutDesc([torch.Size([CHUNK_BYTES])], [torch.uint8])
        self._names = {
            "model_name": settings.get("model", "toy"),
            "kv_rank": settings.get("kv_rank", 0x01000100),
            "object_group_id": settings.get("group", 0),
            "cache_salt": settings.get("salt", ""),
        }

    def _keys(self, hashes: list[bytes]) -> list[ObjectKey]:
        return [ObjectKey(chunk_hash=each, **self._names) for each in hashes]

    def load(self, hashes: list[bytes]) -> list[bytes]:
        """Of the longest run from the first one on."""
        keys = self._keys(hashes)
        if not keys:
            return []
        row = GroupedObjectKeys(keys, self._names["object_group_id"], self._layout)
        handle = self._manager.submit_prefetch_task(PrefetchTaskSpec([row]))
        assert self._manager.wait_prefetch_status(handle, SECONDS), "LMCache says nothing"
        found = self._manager.query_prefetch_status(handle)
        hits = keys[: found.hit_cells[0].count_leading_ones()]
        if not hits:
            return []
        with self._manager.read_prefetched_results(hits) as objects:
            read = [bytes(each.byte_array) for each in objects]
        self._manager.finish_read_prefetched(hits)
        return read

    def store(self, chunk_hash: bytes, data: bytes) -> None:
        """In memory at once, in kvlease later."""
        keys = self._keys([chunk_hash])
        for each in self._manager.reserve_write(keys, self._layout).values():
            each.raw_data[:CHUNK_BYTES] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            self._manager.finish_write(keys)

    def flush(self) -> None:
        """Until nothing is being stored; afterwards no chunk is in LMCache's own memory."""
        end = time.monotonic() + SECONDS
        while self._is_storing():
            assert time.monotonic() < end, "LMCache doesn't end a store"
            time.sleep(0.002)
        self._manager.clear()

    def _is_storing(self) -> bool:
        status = self._manager.report_status()["store_controller"]
        return bool(status["pending_keys_count"] or status["in_flight_task_count"])

    def close(self) -> None:
        """Ends its threads."""
        self._manager.close()


class InProcess:
    """LMCache's engine, as it is inside a process of vLLM. It has no memory for chunks of its own
    (local_cpu), so that all are found in kvlease."""

    def __init__(self, settings: dict[str, Any], options: dict[str, Any] | None) -> None:
        extra = {f"kvlease.{name}": value for name, value in (options or {}).items()}
        extra["storage_plugin.kvlease.module_path"] = "kvlease.lmcache.backend"
        extra["storage_plugin.kvlease.class_name"] = "Backend"
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=CHUNK_TOKENS,
            local_cpu=False,
            max_local_cpu_size=0.25,
            storage_plugins=[] if options is None else ["kvlease"],
            extra_config=extra,
        )
        self._name = settings.get("model", "toy")
        self._rank = settings.get("kv_rank", 0x01000100) >> 16 & 255
        self._dtype = getattr(torch, settings.get("dtype", "uint8"))
        self._tags = {"lmcache.tag.salt": settings.get("salt", "")}
        width = CHUNK_BYTES // 2 // CHUNK_TOKENS // self._dtype.itemsize
        self._shape = torch.Size((2, 1, CHUNK_TOKENS, width))
        metadata = LMCacheMetadata(
            model_name=self._name,
            world_size=2,
            local_world_size=2,
            worker_id=self._rank,
            local_worker_id=self._rank,
            kv_dtype=self._dtype,
            kv_shape=(1, 2, CHUNK_TOKENS, 1, width),
            chunk_size=CHUNK_TOKENS,
        )
        engine = LMCacheEngineBuilder.get_or_create(
            "engine", config, metadata, None, lambda tensor, source: None, lambda it, source: it
        )
        engine.post_init()
        self._storage = engine.storage_manager
        self._backend = self._storage.storage_backends.get("kvlease")
        self._stored: list[CacheEngineKey] = []

    def _keys(self, hashes: list[bytes]) -> list[CacheEngineKey]:
        return [
            CacheEngineKey(
                self._name, 2, self._rank, int.from_bytes(each[:8], "big"), self._dtype, self._tags
            )
            for each in hashes
        ]

    def load(self, hashes: list[bytes]) -> list[bytes]:
        """Of the longest run from the first one on."""
        _, places = self._storage.batched_contains(self._keys(hashes), None, True)
        read = []
        for place, keys in places.items():
            for obj in self._storage.batched_get(keys, place):
                if obj is None:
                    return read
                read.append(bytes(obj.byte_array))
                obj.ref_count_down()
            self._storage.batched_unpin(keys, [place])
        return read

    def store(self, chunk_hash: bytes, data: bytes) -> None:
        """In kvlease, soon."""
        obj = self._storage.allocate(self._shape, self._dtype)
        obj.tensor.view(torch.uint8).flatten()[:] = torch.frombuffer(data, dtype=torch.uint8)
        keys = self._keys([chunk_hash])
        self._storage.batched_put(keys, [obj])
        self._stored += keys

    def flush(self) -> None:
        """Until nothing is being stored."""
        end = time.monotonic() + SECONDS
        while self._backend and any(map(self._backend.exists_in_put_tasks, self._stored)):
            assert time.monotonic() < end, "LMCache doesn't end a store"
            time.sleep(0.002)
        self._stored = []

    def close(self) -> None:
        """Ends its threads."""
        LMCacheEngineBuilder.destroy("engine")


class Engine:
    """What a test may call."""

    def __init__(self, settings: dict[str, Any]) -> None:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO)
        options = settings.get("kvlease")
        if options is not None:
            # LMCache compares nothing.
            options = {name: value for name, value in options.items() if name != "verify"}
        make: dict[str, Callable[..., Any]] = {"server": Server, "in process": InProcess}
        self._cache = make[settings.get("kind", "server")](settings, options)
        self._weights = str(settings.get("weights", 1)).encode()
        self._stats = {"asked_tokens": 0, "hit_tokens": 0}

    def _hashes(self, text: list[int]) -> list[bytes]:
        """Of its full chunks: what LMCache knows them by."""
        hashes, last = [], b""
        for end in range(CHUNK_TOKENS, len(text) + 1, CHUNK_TOKENS):
            tokens = repr(text[end - CHUNK_TOKENS : end]).encode()
            last = hashlib.sha256(last + tokens).digest()
            hashes.append(last)
        return hashes

    def _compute(self, before: bytes, tokens: list[int]) -> bytes:
        seed = hashlib.sha256(self._weights + before + repr(tokens).encode()).digest()
        return random.Random(seed).randbytes(CHUNK_BYTES)

    def _run(self, prompt: list[int], n_tokens: int) -> list[int]:
        text = list(prompt)
        found = self._cache.load(self._hashes(text[:-1]))
        self._stats["asked_tokens"] += len(text)
        self._stats["hit_tokens"] += len(found) * CHUNK_TOKENS
        digests = [hashlib.sha256(each).digest() for each in found]
        while len(text) < len(prompt) + n_tokens:
            hashes = self._hashes(text)
            for i in range(len(digests), len(hashes)):
                tokens = text[i * CHUNK_TOKENS : (i + 1) * CHUNK_TOKENS]
                data = self._compute(b"".join(digests), tokens)
                self._cache.store(hashes[i], data)
                digests.append(hashlib.sha256(data).digest())
            rest = text[len(digests) * CHUNK_TOKENS :]
            state = hashlib.sha256(self._weights + b"".join(digests) + repr(rest).encode())
            text.append(int.from_bytes(state.digest()[:4], "big") % 500)
        return text[len(prompt) :]

    def run(self, prompts: list[list[int]], n_tokens: int) -> dict[str, Any]:
        """One after the other."""
        tokens = [self._run(prompt, n_tokens) for prompt in prompts]
        self._cache.flush()
        return {"tokens": tokens, "errors": []}

    def stats(self) -> dict[str, int]:
        """Of what was found."""
        return self._stats

    def stop(self) -> None:
        """Ends the engine; what it held is given back."""
        self._cache.close()

    def failed(self, error: Exception) -> dict[str, str]:
        """The answer to a call that ended with it."""
        return {"error": repr(error)}
