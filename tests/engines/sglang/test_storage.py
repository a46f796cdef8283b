"""The storage backend between SGLang's host pools and kvleased, made by SGLang's factory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kvlease_conftest as package
import pytest
import torch
from contract import full
from pools import (
    PAGE,
    after,
    attached,
    clear,
    fill,
    invalidate,
    make_config,
    make_keys,
    make_mha,
    page_of,
    set_runner,
    slots,
)
from support import MEMORY, ctl, held, namespaces, published

import kvlease
import kvlease._link

pytestmark = pytest.mark.usefixtures("runner")


@pytest.mark.parametrize("layout", ["page_first", "layer_first", "page_first_direct", "page_head"])
def test_round_trip(daemon: Any, layout: str) -> None:
    """A second engine has the same bytes, in other places of its pool, and no more."""
    first, second = make_mha(layout), make_mha(layout)
    keys, before = make_keys(9), make_keys(1, seed=1)
    pages = [3, 1, 4, 15, 9, 2, 6, 5]
    with attached(daemon, make_config(), kv=first) as writer:
        assert writer.batch_exists(keys) == 0
        assert writer.batch_set_v1(keys[:8], slots(*pages), after(*before)) == [True] * 8
    clear(second)
    with attached(daemon, make_config(), kv=second) as reader:
        assert reader.batch_exists(keys) == 8
        assert reader.batch_exists(keys[5:]) == 3
        assert reader.batch_exists(keys[8:]) == 0
        places = [20, 22, 21, 30, 31, 32, 33, 34, 35]
        found = reader.batch_get_v1(keys, slots(*places))
        assert found == [True] * 8 + [False]
        for there, here in zip(pages, places, strict=False):
            assert page_of(second, here * PAGE) == page_of(first, there * PAGE)
        assert not any(page_of(second, 35 * PAGE))
        assert reader.stats.hit_tokens == 8 * PAGE
    assert held(daemon) == (0, 0) and "consistent" in ctl(daemon, "check")


def test_parents(daemon: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Pages follow those that SGLang names; without names they are stored all the same, and the
    log says once which setting is missing."""
    host, keys = make_mha(), make_keys(6)
    with attached(daemon, make_config(), kv=host) as backend:
        assert all(backend.batch_set_v1(keys[:2], slots(0, 1), after()))
        assert all(backend.batch_set_v1(keys[2:4], slots(2, 3), after(*keys[:2])))
        # A page goes with those behind it.
        assert invalidate(backend, keys[1]) == 3
        assert backend.batch_exists(keys) == 1
        assert not caplog.records
        # The page before was evicted here, and SGLang has it still.
        assert all(backend.batch_set_v1(keys[2:4], slots(2, 3), after(*keys[:2])))
        assert backend.batch_exists(keys[2:]) == 2
        for _ in range(2):
            assert all(backend.batch_set_v1(keys[4:], slots(4, 5)))
    (record,) = caplog.records
    assert "hicache_storage_pass_prefix_keys" in record.message


def test_duplicates(daemon: Any) -> None:
    """What another engine has stored isn't copied again, and takes no memory."""
    host, keys = make_mha(), make_keys(4)
    config = make_config
    with attached(daemon, config(), kv=host) as one, attached(daemon, config(), kv=host) as other:
        assert all(one.batch_set_v1(keys[:3], slots(0, 1, 2), after()))
        assert all(other.batch_set_v1(keys, slots(0, 1, 2, 3), after()))
        assert (one.stats.published_pages, other.stats.published_pages) == (3, 1)
        assert published(daemon) == 4


IDENTITIES: dict[str, Any] = {
    "rank": {"tp": (1, 2)},
    "ranks": {"tp": (0, 2)},
    "stage": {"pp": (1, 2)},
    "context": {"attn_cp": (1, 2)},
    "salt": {"settings": {"salt": "of others"}},
}


@pytest.mark.parametrize("change", IDENTITIES)
def test_identity_of_ranks(daemon: Any, change: str) -> None:
    """Other ranks and salts find nothing under the same keys."""
    host, keys = make_mha(), make_keys(2)
    with attached(daemon, make_config(), kv=host) as backend:
        assert all(backend.batch_set_v1(keys, slots(0, 1), after()))
    with attached(daemon, make_config(**IDENTITIES[change]), kv=host) as other:
        assert other.batch_exists(keys) == 0
    with attached(daemon, make_config(), kv=host) as same:
        assert same.batch_exists(keys) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"config": {"rope_theta": 5.0}},
        {"dtype": torch.float16},
        {"attn_backend": object()},
        {"kv_cache_dtype": torch.float8_e5m2},
        {"layout": "layer_first"},
        {"numbers": torch.float16},
    ],
    ids=lambda change: next(iter(change)),
)
def test_identity_of_models(daemon: Any, change: dict[str, Any], runner: Any) -> None:
    """Other weights, settings, numbers and layouts find nothing."""
    keys = make_keys(2)
    with attached(daemon, make_config(), kv=make_mha()) as backend:
        assert all(backend.batch_set_v1(keys, slots(0, 1), after()))
    pool = make_mha(change.pop("layout", "page_first"), change.pop("numbers", torch.bfloat16))
    set_runner(runner, **change)
    with attached(daemon, make_config(), kv=pool) as backend:
        assert backend.batch_exists(keys) == 0
        assert len(namespaces(daemon)) == 2


def test_model_changes(daemon: Any, runner: Any) -> None:
    """Weights that are written to: nothing is found or stored before the backend is made anew."""
    host, keys = make_mha(), make_keys(2)
    with attached(daemon, make_config(), kv=host) as backend:
        assert all(backend.batch_set_v1(keys[:1], slots(0), after()))
        with torch.no_grad():
            runner.model.weight[0, 0] += 1
        assert backend.batch_exists(keys) == 0
        assert backend.batch_get_v1(keys[:1], slots(0)) == [False]
        assert backend.batch_set_v1(keys[1:], slots(1), after(keys[0])) == [False]
    with attached(daemon, make_config(), kv=host) as backend:
        assert backend.batch_exists(keys) == 0
        assert all(backend.batch_set_v1(keys, slots(0, 1), after()))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"interface_v1": 0}, "interface_v1"),
        ({"sockets": "/x"}, "'sockets'"),
        ({"verify": 2}, "verify"),
        ({"host_codec": 1}, "host_codec"),
    ],
)
def test_refused(settings: dict[str, Any], word: str, daemon: Any) -> None:
    """Settings that can't be, in a sentence."""
    with (
        pytest.raises(ValueError, match=word),
        attached(daemon, make_config(settings=settings), kv=make_mha()),
    ):
        pass


def test_no_model(daemon: Any, runner: Any) -> None:
    """A process without one."""
    runner.__dict__.clear()
    with (
        pytest.raises(ValueError, match="finds no model"),
        attached(daemon, make_config(), kv=make_mha()),
    ):
        pass


def test_verify(daemon: Any) -> None:
    """Pages of the same key with other numbers are found out, and dropped."""
    truth, lie, keys = make_mha(dtype=torch.float32), make_mha(dtype=torch.float32), make_keys(3)
    for host in (truth, lie):
        numbers = torch.randn(host.kv_buffer.shape, generator=torch.Generator().manual_seed(3))
        host.kv_buffer.copy_(numbers)
    config = {"settings": {"verify": 1}}
    with attached(daemon, make_config(), kv=truth) as backend:
        assert all(backend.batch_set_v1(keys, slots(0, 1, 2), after()))
    with attached(daemon, make_config(**config), kv=truth) as backend:
        assert backend.batch_exists(keys) == 0 and backend.stats.verified == 1
        assert all(backend.batch_set_v1(keys, slots(0, 1, 2), after()))
        assert backend.stats.compared_pages == 3
    lie.kv_buffer.neg_()
    with attached(daemon, make_config(**config), kv=lie) as backend:
        backend.batch_set_v1(keys, slots(0, 1, 2), after())
        assert backend.batch_exists(keys) == 0
        assert backend.batch_set_v1(make_keys(1, seed=4), slots(4), after()) == [False]
    assert published(daemon) == 0 and held(daemon) == (0, 0)


def test_faults(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's own faults: what is loaded has the right bytes, and nothing is held."""
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY", "0.002")
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE", "0.3")
    host, other = make_mha(), make_mha()
    n_loaded = n_stored = 0
    with (
        attached(daemon, make_config(), kv=host) as writer,
        attached(daemon, make_config(), kv=other) as reader,
    ):
        for seed in range(60):
            fill(host, seed)
            keys = make_keys(4, seed=100 + seed)
            n_stored += all(writer.batch_set_v1(keys, slots(0, 1, 2, 3), after()))
            n = reader.batch_exists(keys)
            if n:
                found = reader.batch_get_v1(keys[:n], slots(8, 9, 10, 11)[: n * PAGE])
                for i in range(sum(found)):
                    assert page_of(other, (8 + i) * PAGE) == page_of(host, i * PAGE)
                n_loaded += sum(found)
    assert 0 < n_loaded < 4 * n_stored < 240
    assert held(daemon) == (0, 0) and "consistent" in ctl(daemon, "check")


def test_full(make_daemon: Any) -> None:
    """A tenant whose pages another client holds: nothing is stored, and later it is."""
    daemon = make_daemon(device=MEMORY, tenant="limit = 8MiB")
    host, keys = make_mha(), make_keys(2)
    with attached(daemon, make_config(), kv=host) as backend:
        with full(daemon):
            assert backend.batch_set_v1(keys, slots(0, 1), after()) == [False, False]
        package.wait_until(lambda: all(backend.batch_set_v1(keys, slots(0, 1), after())))


def test_daemon_away(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gone at the start, killed, and gone for good: nothing raises, and it is used again."""
    monkeypatch.setattr(kvlease._link, "_PAUSE_SECONDS", 0.2)
    daemon.stop()
    host, keys = make_mha(), make_keys(2)

    def stores() -> bool:
        done: list[bool] = backend.batch_set_v1(keys, slots(0, 1), after())
        return all(done)

    with attached(daemon, make_config(settings={"timeout": 0.5}), kv=host) as backend:
        assert not stores() and backend.batch_exists(keys) == 0
        assert backend.batch_get_v1(keys, slots(0, 1)) == [False, False]
        daemon.start()
        package.wait_until(stores)
        daemon.stop()
        assert backend.batch_get_v1(keys, slots(0, 1)) in ([True, True], [False, False])
        backend.clear()
        daemon.start()
        package.wait_until(stores)
        daemon.stop()
        daemon.start()
        # So far the pages are found in the memory of the daemon that is gone.
        package.wait_until(lambda: not backend.batch_exists(keys))


def test_threads(daemon: Any) -> None:
    """SGLang's threads look up, load and store at the same time."""
    host = make_mha()
    texts = [make_keys(8, seed=seed) for seed in range(6)]
    with attached(daemon, make_config(), kv=host) as backend:

        def work(i: int) -> None:
            keys, places = texts[i % 6], slots(*range(8))
            for _ in range(20):
                if not backend.batch_exists(keys):
                    backend.batch_set_v1(keys, places, after())
                found = backend.batch_get_v1(keys, slots(*range(8 + 8 * i, 16 + 8 * i)))
                assert found == [True] * 8

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(work, range(6)))
        for i in range(6):
            assert page_of(host, (8 + 8 * i) * PAGE) == page_of(host, 0)
    assert held(daemon) == (0, 0)


def test_clear(daemon: Any, caplog: pytest.LogCaptureFixture) -> None:
    """SGLang's command to drop its storage."""
    host, keys = make_mha(), make_keys(2)
    with attached(daemon, make_config(), kv=host) as backend:
        assert all(backend.batch_set_v1(keys, slots(0, 1), after()))
        backend.clear()
        assert backend.batch_exists(keys) == 0
        assert all(backend.batch_set_v1(keys, slots(0, 1), after()))
    (record,) = caplog.records
    assert "the namespace was invalidated" in record.getMessage()
