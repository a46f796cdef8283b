"""Pools of models whose layers don't all attend to the whole text: windows and states."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pools import (
    PAGE,
    after,
    attached,
    clear,
    invalidate,
    make_config,
    make_keys,
    make_mamba,
    make_mha,
    make_mla,
    page_of,
    slots,
)
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer
from support import ctl, held, namespaces

pytestmark = pytest.mark.usefixtures("runner")
LAST, ALL = PoolHitPolicy.TRAILING_PAGES, PoolHitPolicy.ALL_PAGES


def transfer(
    name: str, keys: list[str], indices: torch.Tensor | None = None, policy: PoolHitPolicy = LAST
) -> PoolTransfer:
    """As SGLang's controller makes them."""
    return PoolTransfer(PoolName(name), host_indices=indices, keys=keys, hit_policy=policy)


def test_windows_and_states(daemon: Any) -> None:
    """What can be restored: where the last pages of the window and a state are there."""
    kv, swa, mamba, keys = make_mha(), make_mha(), make_mamba(), make_keys(8)
    pools = {"kv": kv, "swa": swa, "mamba": mamba}
    with attached(daemon, make_config(), **pools) as writer:
        # Two nodes of SGLang's tree: 5 pages, and 3 behind them. Each has its last two pages of the
        # window, and a state.
        for first, end in ((0, 5), (5, 8)):
            done = writer.batch_set_v2(
                [
                    transfer("swa", keys[end - 2 : end], slots(end - 2, end - 1)),
                    transfer("mamba", keys[end - 1 : end], slots(end - 1, size=1)),
                ],
                after(*keys[:first]),
            )
            assert done == {"swa": [True, True], "mamba": [True]}
            pages = slots(*range(first, end))
            assert all(writer.batch_set_v1(keys[first:end], pages, after(*keys[:first])))
    assert len(namespaces(daemon)) == 3
    with attached(daemon, make_config(), **pools) as reader:
        window, state = transfer("swa", keys[-2:]), transfer("mamba", keys[-1:])
        found = reader.batch_exists_v2(keys, [window, state])
        assert found.restorable_prefix_pages == [5, 8] and found.kv_hit_pages == 8
        assert found.extra_pool_hit_pages == {"kv": 8, "swa": 8, "mamba": 8}
        assert reader.batch_exists_v2(keys, [window]).restorable_prefix_pages == [5, 8]
        shorter = reader.batch_exists_v2(keys[:7], [window, state])
        assert shorter.restorable_prefix_pages == [5] and shorter.kv_hit_pages == 5
        assert reader.batch_exists_v2(make_keys(3, seed=9), [window]).kv_hit_pages == 0
        # A pool of which every page must be there.
        (every,) = [transfer("swa", keys, policy=ALL)]
        assert reader.batch_exists_v2(keys, [every]).restorable_prefix_pages == []
        expected = [page_of(swa, page * PAGE) for page in (6, 7)], page_of(mamba, 7)
        clear(swa)
        clear(mamba)
        got = reader.batch_get_v2(
            [
                transfer("swa", keys[6:], slots(20, 21)),
                transfer("mamba", keys[7:], slots(30, size=1)),
                transfer("mamba", make_keys(1, seed=9), slots(31, size=1)),
            ][:2]
        )
        assert got == {"swa": [True, True], "mamba": [True]}
        assert ([page_of(swa, page * PAGE) for page in (20, 21)], page_of(mamba, 30)) == expected
        missing = reader.batch_get_v2([transfer("mamba", keys[5:6], slots(31, size=1))])
        assert missing == {"mamba": [False]}
    assert held(daemon) == (0, 0) and "consistent" in ctl(daemon, "check")


def test_every_page(daemon: Any) -> None:
    """A pool beside keys and values whose pages follow each other as theirs do."""
    kv, other, keys = make_mha(), make_mha(dtype=torch.float16), make_keys(4)
    with attached(daemon, make_config(), kv=kv, indexer=other) as backend:
        both = [transfer("indexer", keys[:3], slots(0, 1, 2), ALL)]
        assert backend.batch_set_v2(both, after()) == {"indexer": [True] * 3}
        assert all(backend.batch_set_v1(keys, slots(0, 1, 2, 3), after()))
        found = backend.batch_exists_v2(keys, [transfer("indexer", keys, policy=ALL)])
        assert found.restorable_prefix_pages == [1, 2, 3]
        assert invalidate(backend, keys[1], "indexer") == 2


def test_later_pool(daemon: Any) -> None:
    """One that SGLang registers after the others."""
    kv, keys = make_mha(), make_keys(2)
    with attached(daemon, make_config(), kv=kv) as backend:
        assert backend.batch_set_v2([transfer("swa", keys, slots(0, 1))]) == {"swa": [False] * 2}
        backend.register_mem_host_pool_v2(make_mha(), PoolName.SWA)
        assert backend.batch_set_v2([transfer("swa", keys, slots(0, 1))]) == {"swa": [True] * 2}


def test_replicas(daemon: Any) -> None:
    """Ranks of a model with one latent vector find each other's keys and values, but states, which
    are divided among them."""
    kv, mamba, keys = make_mla(), make_mamba(), make_keys(2)
    first, second = (make_config(tp=(rank, 2), is_mla_model=True) for rank in (0, 1))
    with attached(daemon, first, kv=kv, mamba=mamba) as backend:
        assert all(backend.batch_set_v2([transfer("mamba", keys[1:], slots(0, size=1))])["mamba"])
        assert all(backend.batch_set_v1(keys, slots(0, 1), after()))
    with attached(daemon, second, kv=kv, mamba=mamba) as other:
        state = transfer("mamba", keys[1:], slots(1, size=1))
        assert other.batch_get_v2([state]) == {"mamba": [False]}
        assert all(other.batch_get_v1(keys, slots(8, 9)))
    assert page_of(kv, 9 * PAGE) == page_of(kv, PAGE)
