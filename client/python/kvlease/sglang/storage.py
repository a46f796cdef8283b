"""The backend of HiCache's storage: copies pages of SGLang's host memory to pages of kvleased."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
    PoolTransferResult,
)

import kvlease
from kvlease import _verify
from kvlease._engine import Stats, last_part
from kvlease._link import Link, Session
from kvlease.sglang.identity import Model, layout_of, runners
from kvlease.sglang.options import Options
from kvlease.sglang.pages import DevicePool, Pinned, Pool, cached, key_of

_logger = logging.getLogger("kvlease")
_KV = PoolName.KV.value
_T = TypeVar("_T")


class Storage(HiCacheStorage):
    """One of each rank. Threads of SGLang call it at the same time. Once it is attached no method
    raises: a kvleased that is away, full or slow costs hits, nothing else."""

    def __init__(self, config: HiCacheStorageConfig, keywords: Any = None) -> None:
        """keywords: what SGLang hands to all backends, not used. ValueError for settings that can't
        be; SGLang doesn't start then."""
        given = config.extra_config or {}
        if not given.get("interface_v1"):
            raise ValueError('kvlease needs "interface_v1": 1 beside "class_name"')
        self.stats = Stats()
        self._options = Options.of(given)
        self._config = config
        self._pools: dict[str, Pool] = {}
        self._model: Model | None = None
        self._has_warned = False
        name = last_part(config.model_name or "")
        client = (self._options.client_name or f"sglang {name}").strip()
        rank = f" rank {config.tp_rank}" if config.tp_size > 1 else ""
        rank += f" dp {config.dp_rank}" if config.dp_rank else ""
        self._layouts: dict[str, kvlease.Layout] = {}
        self._link = Link(
            self._options.socket, client[: 64 - len(rank)] + rank, self._options.timeout
        )

    # Pools that SGLang registers.

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """The pool of keys and values."""
        super().register_mem_pool_host(mem_pool_host)
        self.register_mem_host_pool_v2(mem_pool_host, PoolName.KV)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: PoolName) -> None:
        """A pool. ValueError where its pages can't be copied."""
        name = PoolName(host_pool_name).value
        if name not in self._pools or self._pools[name].host is not host_pool:
            self.add_pool(Pool(name, host_pool))

    def add_pool(self, pool: Pool) -> None:
        """ValueError where its pages can't be compared, and are to be."""
        if pool.name == _KV:
            _verify.check_dtype(self._options.verify, pool.dtype)
        self._pools[pool.name] = pool
        if self._model is not None:
            self._add(pool, self._model)

    def on_host_pools_registered(self) -> None:
        """Takes the model's identity. ValueError where that can't be."""
        model = self._model = Model(self._options, runners())
        for pool in self._pools.values():
            self._add(pool, model)
        self._call(_KV, None, lambda namespace: namespace.check_room(1))

    def _add(self, pool: Pool, model: Model) -> None:
        is_of_rank = pool.is_of_rank(self._config.is_mla_model)
        layout = layout_of(pool, self._config, model.identity, is_of_rank)
        self._layouts[pool.name] = layout

    def _call(self, name: str, otherwise: _T, work: Callable[[kvlease.Namespace], _T]) -> _T:
        """What work returns for the namespace of this pool, or otherwise."""

        def work_there(session: Session) -> _T:
            try:
                namespace = session.namespace(self._layouts[name], "host", self._options.codecs)
            except kvlease.Error:
                raise
            except ValueError as error:
                # kvleased doesn't know these codecs, or the namespace has others.
                self._link.stop(str(error))
                return otherwise
            return work(namespace)

        return self._link.call(otherwise, work_there)

    # Keys and values.

    def batch_exists(
        self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> int:
        """How many leading pages are cached."""
        found = sum(self._cached(_KV, keys, every=False))
        self._count(len(keys))
        return 0 if found and self._is_verified() else found

    def batch_get_v1(
        self,
        keys: list[str],
        host_indices: torch.Tensor,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> list[bool]:
        """Which pages are in the host pool now: those up to the first that isn't cached."""
        return self._load(_KV, keys, host_indices)

    def batch_set_v1(
        self,
        keys: list[str],
        host_indices: torch.Tensor,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> list[bool]:
        """Which pages are cached now."""
        return self._save(_KV, keys, host_indices, self._before(extra_info))

    # Pools of hybrid models.

    def batch_exists_v2(
        self,
        keys: list[str],
        pool_transfers: list[PoolTransfer] | None = None,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> PoolTransferResult:
        """Which beginnings of the pages can be restored in all pools."""
        n_found = sum(self._cached(_KV, keys, every=False))
        self._count(len(keys))
        if not n_found or self._is_verified():
            return PoolTransferResult.empty()
        hits = {_KV: n_found}
        lengths = set(range(1, n_found + 1))
        for transfer in pool_transfers or []:
            if transfer.hit_policy == PoolHitPolicy.BLOCK_GROUPS:
                continue  # It never changes what is found, and without a verdict isn't asked for.
            own = self._lengths(transfer, keys[:n_found])
            if own:
                hits[transfer.name] = max(own)
            lengths &= own
        return PoolTransferResult(max(lengths, default=0), hits, sorted(lengths))

    def batch_get_v2(
        self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> dict[str, list[bool]]:
        """The pages of each pool that are in its host memory now."""
        return {
            each.name: self._load(each.name, each.keys or [], each.host_indices)
            for each in transfers
        }

    def batch_set_v2(
        self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> dict[str, list[bool]]:
        """The pages of each pool that are cached now."""
        done = {}
        for each in transfers:
            before: str | None = None
            is_chain = each.hit_policy == PoolHitPolicy.ALL_PAGES
            if is_chain:
                before = self._before(extra_info)
            done[each.name] = self._save(
                each.name, each.keys or [], each.host_indices, before, is_chain=is_chain
            )
        return done

    def pin(self, pool: DevicePool, keys: list[str]) -> Pinned | None:
        """All pages of a pool; None: some aren't cached, or the model has changed."""
        if not keys or not self._can_share(pool.name):
            return None
        hashes = list(map(key_of, keys))
        pinned = self._call(pool.name, None, lambda namespace: pool.pin(namespace, hashes))
        if pinned is not None and pool.name == _KV:
            self.stats.hit_tokens += len(keys) * pool.n_slots
        return pinned

    def _lengths(self, transfer: PoolTransfer, keys: list[str]) -> set[int]:
        """The numbers of pages that can be restored of a pool."""
        if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
            return set(range(1, sum(self._cached(transfer.name, keys, every=False)) + 1))
        n_last = max(1, len(transfer.keys or []))
        is_cached = self._cached(transfer.name, keys, every=True)
        return {n for n in range(1, len(keys) + 1) if all(is_cached[max(0, n - n_last) : n])}

    # What both do.

    def _cached(self, name: str, keys: Sequence[str], *, every: bool) -> list[bool]:
        none = [False] * len(keys)
        if not keys or not self._can_share(name):
            return none
        hashes = list(map(key_of, keys))
        return self._call(name, none, lambda ns: cached(ns, hashes, every))

    def _load(self, name: str, keys: list[str], indices: torch.Tensor | None) -> list[bool]:
        none = [False] * len(keys)
        pool = self._pools.get(name)
        if not pool or not keys or not self._fits(pool, keys, indices):
            return none
        hashes = list(map(key_of, keys))
        done = self._call(name, none, lambda ns: pool.load(ns, hashes, indices))
        if name == _KV:
            self.stats.hit_tokens += sum(done) * pool.n_slots
        return done

    def _save(
        self,
        name: str,
        keys: list[str],
        indices: torch.Tensor | None,
        before: str | None,
        *,
        is_chain: bool = True,
    ) -> list[bool]:
        none = [False] * len(keys)
        pool = self._pools.get(name)
        if not pool or not keys or not self._fits(pool, keys, indices):
            return none
        assert indices is not None
        hashes = list(map(key_of, keys))
        if is_chain:
            parent = key_of(before) if before else None
            n = self._call(name, 0, lambda ns: self._save_run(ns, pool, hashes, indices, parent))
            return [True] * n + none[n:]
        slots = indices.split(pool.n_slots)
        return [
            self._call(name, 0, partial(self._save_run, pool=pool, keys=[key], indices=at)) > 0
            for key, at in zip(hashes, slots, strict=True)
        ]

    def _save_run(
        self,
        namespace: kvlease.Namespace,
        pool: Pool,
        keys: Sequence[bytes],
        indices: torch.Tensor,
        parent: bytes | None = None,
    ) -> int:
        """Stores pages that follow each other; returns how many leading ones are cached then."""
        n_known = 0 if self._options.verify else len(namespace.probe(b"".join(keys)))
        if n_known == len(keys):
            return n_known
        if n_known:
            parent = keys[n_known - 1]
        with pool.save(namespace, keys[n_known:], indices[n_known * pool.n_slots :]) as pages:
            own = list(pages)
            if self._has_changed():
                return n_known
            with self._publish(namespace, pages, b"".join(keys[n_known:]), parent) as carried:
                self._compare(namespace, pool, own, carried)
                return n_known + len(carried)

    @staticmethod
    def _publish(
        namespace: kvlease.Namespace, pages: kvlease.Pages, keys: bytes, parent: bytes | None
    ) -> kvlease.Pages:
        """The pages that carry the keys then."""
        try:
            return namespace.publish(pages, keys, parent=parent)
        except kvlease.NoParent as error:
            if parent is None or error.published:
                return error.published
        # SGLang has the page before, which kvleased has evicted: so requests look for these alone.
        return namespace.publish(pages, keys)

    def _compare(
        self, namespace: kvlease.Namespace, pool: Pool, own: list[int], carried: kvlease.Pages
    ) -> None:
        """Compares keys and values with those that another engine had stored before."""
        n_others = sum(mine != theirs for mine, theirs in zip(own, carried, strict=False))
        self.stats.published_pages += len(carried)
        self.stats.duplicate_pages += n_others
        if not n_others or not self._options.verify or pool.name != _KV:
            return
        assert self._model is not None
        verifier = _verify.Verifier(
            self._options.verify,
            namespace,
            pool.dtype,
            self._model.identity,
            self._model.current,
        )
        self.stats.compared_pages += verifier.compare(own, carried, pool.pieces)
        if verifier.has_failed:
            self._link.stop("a page holds other numbers than this engine has computed")

    def _before(self, extra_info: HiCacheStorageExtraInfo | None) -> str | None:
        """The key of the page before; None: there is none, or SGLang doesn't tell."""
        prefix = extra_info.prefix_keys if extra_info is not None else None
        if prefix is None and not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "hicache_storage_pass_prefix_keys isn't set: kvleased can't tell which page comes "
                "before which, and may evict beginnings of texts before their ends. Set it to true "
                "in --hicache-storage-backend-extra-config"
            )
        return prefix[-1] if prefix else None

    def _count(self, n_pages: int) -> None:
        self.stats.requests += 1
        self.stats.asked_tokens += n_pages * self._pools[_KV].n_slots

    def _is_verified(self) -> bool:
        """Whether a text that was found is computed all the same, to be compared."""
        is_picked = random.random() < self._options.verify
        self.stats.verified += is_picked
        return is_picked

    def _fits(self, pool: Pool, keys: list[str], indices: torch.Tensor | None) -> bool:
        """Whether the engine's pages can be touched."""
        if indices is None or indices.numel() != len(keys) * pool.n_slots:
            _logger.error("pool %s: other indices than %d pages have", pool.name, len(keys))
            return False
        return self._can_share(pool.name)

    def _can_share(self, name: str) -> bool:
        return name in self._pools and not self._has_changed()

    def _has_changed(self) -> bool:
        """Whether the numbers in SGLang's pools may be of another model than the namespaces'."""
        if self._model is None:
            return True
        has_changed = self._model.has_changed()
        if has_changed:
            self._link.stop("the model has changed: detach the storage backend, and attach it anew")
        return has_changed

    # The rest.

    def clear(self) -> None:
        """Drops all pages of the model, which engines of the tenant share."""
        for name in self._pools:
            self._call(name, 0, lambda namespace: namespace.invalidate())

    def close(self) -> None:
        """The engine ends, or detaches its storage."""
        self._link.close()

    # Calls of SGLang without interface_v1, which the constructor refuses.

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> None:
        """Nothing."""

    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[torch.Tensor | None]:
        """Nothing."""
        return [None] * len(keys)

    def set(
        self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None
    ) -> bool:
        """Stores nothing."""
        return False

    def batch_set(
        self,
        keys: list[str],
        values: Any = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        """Stores nothing."""
        return False

    def exists(self, key: str) -> bool:
        """Whether a page of keys and values is cached."""
        return self.batch_exists([key]) > 0
