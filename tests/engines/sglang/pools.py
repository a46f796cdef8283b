"""SGLang's own pools on the CPU, filled with random numbers, and backends made by its factory."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.mem_cache.device_pool_info import MambaStateBufferInfo
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolName,
)
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.mem_cache.pool_host import base
from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory
from sglang.srt.model_executor.model_runner import ModelRunner
from transformers import LlamaConfig

import kvlease

# SGLang leaves 10 GiB of memory free. These pools take some MB.
base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0
PAGE = 16
SLOTS = 64 * PAGE
# As docs/start/sglang.md has it.
SETTINGS = {
    "backend_name": "kvlease",
    "module_path": "kvlease.sglang",
    "class_name": "Storage",
    "interface_v1": 1,
}


def make_runner() -> ModelRunner:
    """As much of one as says what is computed: a small model, and its configuration."""
    runner = ModelRunner.__new__(ModelRunner)
    set_runner(runner)
    return runner


def set_runner(runner: ModelRunner, seed: int = 0, **changes: Any) -> None:
    """Sets the model and the settings."""
    torch.manual_seed(seed)
    config = LlamaConfig(**changes.pop("config", {}))
    given = {
        "model": torch.nn.Linear(64, 64),
        "is_draft_worker": False,
        "dtype": torch.float32,
        "kv_cache_dtype": torch.bfloat16,
        "attn_backend": SimpleNamespace(),
        "model_config": SimpleNamespace(hf_config=config, quantization=None, context_len=4096),
    }
    vars(runner).update(given | changes)


def make_config(**changes: Any) -> HiCacheStorageConfig:
    """Of one rank; settings: of kvlease."""
    settings = changes.pop("settings", {})
    given: dict[str, Any] = {"tp": (0, 1), "pp": (0, 1), "attn_cp": (0, 1)} | changes
    ranks = {
        f"{kind}_{name}": number
        for kind in ("tp", "pp", "attn_cp")
        for name, number in zip(("rank", "size"), given.pop(kind), strict=True)
    }
    given = {"is_mla_model": False, "model_name": "models/tiny"} | given
    return HiCacheStorageConfig(
        **ranks,
        **given,
        enable_storage_metrics=False,
        is_page_first_layout=True,
        extra_config=SETTINGS | settings,
    )


def make_mha(layout: str = "page_first", dtype: torch.dtype = torch.bfloat16) -> Any:
    """A host pool of keys and values, with random numbers."""
    device = MHATokenToKVPool(SLOTS, PAGE, dtype, 2, 32, 3, "cpu", False)
    info = device._mha_buffer_info()
    host = MHATokenToKVPoolHost(
        info,
        1.0,
        0,
        PAGE,
        layout,
        pin_memory=False,
        device_capacity_tokens=SLOTS,
        start_layer=0,
        end_layer=2,
    )
    fill(host)
    return host


def make_mla() -> Any:
    """A host pool of latent vectors, one for each token."""
    device = MLATokenToKVPool(SLOTS, PAGE, torch.bfloat16, 64, 16, 3, "cpu", False)
    host = MLATokenToKVPoolHost(
        device._mla_buffer_info(),
        1.0,
        0,
        PAGE,
        "page_first",
        pin_memory=False,
        device_capacity_tokens=SLOTS,
        start_layer=0,
        end_layer=2,
        target_layer_num=3,
    )
    fill(host)
    return host


def make_mamba() -> Any:
    """A host pool of states, two tensors each."""
    temporal, conv = torch.zeros(2, SLOTS, 3, 40), torch.zeros(2, SLOTS, 7, 4).to(torch.bfloat16)
    info = MambaStateBufferInfo(temporal=temporal, conv=(conv,))
    host = MambaPoolHost(info, 1.0, 0, device_capacity=SLOTS, pin_memory=False, layout="page_first")
    fill(host)
    return host


def fill(host: Any, seed: int = 0) -> None:
    """Random bytes in all of its memory."""
    made = torch.Generator().manual_seed(seed)
    for each in buffers(host):
        flat = each.view(torch.uint8)
        flat.copy_(torch.randint(0, 128, flat.shape, dtype=torch.uint8, generator=made))


def buffers(host: Any) -> list[torch.Tensor]:
    """All of its memory."""
    if isinstance(host, MambaPoolHost):
        return [host.temporal_buffer, *host.conv_buffer]
    return [host.kv_buffer]


def clear(host: Any) -> None:
    """Zeroes in all of its memory."""
    for each in buffers(host):
        each.zero_()


def page_of(host: Any, index: int) -> bytes:
    """The bytes of the page that begins with a slot, as SGLang reads them."""
    flat = host.get_data_page(index).contiguous().view(torch.uint8)
    return bytes(flat.numpy().tobytes())


def make_keys(n: int, seed: int = 0) -> list[str]:
    """Hashes of a text's pages, as SGLang has them."""
    keys, numbers, digest = [], random.Random(seed), b""
    for _ in range(n):
        digest = hashlib.sha256(digest + numbers.randbytes(4 * PAGE)).digest()
        keys.append(digest.hex())
    return keys


def after(*keys: str) -> HiCacheStorageExtraInfo:
    """What SGLang says of the pages before."""
    return HiCacheStorageExtraInfo(prefix_keys=list(keys))


def slots(*pages: int, size: int = PAGE) -> torch.Tensor:
    """Of pages of a pool."""
    return torch.cat([torch.arange(page * size, (page + 1) * size) for page in pages])


def invalidate(storage: Any, key: str, pool: str = "kv") -> int:
    """Drops a page and those behind it; how many."""

    def work(namespace: kvlease.Namespace) -> int:
        return namespace.invalidate(bytes.fromhex(key))

    return int(storage._call(pool, 0, work))


@contextmanager
def attached(daemon: Any, config: HiCacheStorageConfig, **pools: Any) -> Iterator[HiCacheStorage]:
    """A backend of a daemon, made and told as SGLang's controller does; pools: kv and others."""
    assert config.extra_config is not None
    config.extra_config.setdefault("socket", str(daemon.socket))
    backend = StorageBackendFactory.create_backend("dynamic", config, pools["kv"])
    backend.register_mem_pool_host(pools["kv"])
    for name, pool in pools.items():
        backend.register_mem_host_pool_v2(pool, PoolName(name))
    backend.on_host_pools_registered()
    try:
        yield backend
    finally:
        backend.close()
