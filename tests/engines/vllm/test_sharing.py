"""Two engines on one daemon: what one has computed the other finds, and tokens stay the same."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import kvlease_conftest as package
import pytest
import serving
from contract import FULL
from models import make_adapter, make_mla
from support import (
    LIMIT,
    MEMORY,
    ctl,
    failures,
    findable,
    held,
    make_prompts,
    namespaces,
    part_of,
    published,
)

# vLLM's own caches prefixes of MLA only on a CPU with AMX, and its blocks lie apart by layers.
OWN_KERNELS = pytest.mark.skipif(
    not serving.KERNELS, reason="vLLM's own kernels for CPUs can't: the tests' can"
)
PAGE = 32
PROMPTS = make_prompts(1, 500, 7, 20, 33)
# API, EngineCore and worker, as vllm serve has them.
PROCESSES = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}


def test_a_second_process_finds_what_the_first_computed(
    daemon: package.Daemon, start_engines: Any, settings: Any
) -> None:
    (first,) = start_engines(
        settings(daemon, distributed_executor_backend="mp"), environment=PROCESSES
    )
    alone, second = start_engines(settings(), settings(daemon))
    expected = alone.call("run", PROMPTS, 24)
    computed = first.call("run", PROMPTS, 24)
    found = second.call("run", PROMPTS, 24)
    print(
        f"seconds: without kvlease {expected['seconds']:.2f}, first {computed['seconds']:.2f}, "
        f"second {found['seconds']:.2f}"
    )
    assert computed["tokens"] == found["tokens"] == expected["tokens"]
    # As vLLM counts them without kvlease: requests of one engine share, too.
    assert computed["found"] == expected["found"]
    assert found["found"] == findable(PROMPTS, PAGE)
    # Each request of the second was said to wait, for what the first had published.
    assert daemon.figure("expected") >= sum(n > 0 for n in found["found"]) > 0
    texts = [p + t[0][:-1] for p, t in zip(PROMPTS, expected["tokens"], strict=True)]
    pages = {
        tuple(text[: end + PAGE]) for text in texts for end in range(0, len(text) - PAGE + 1, PAGE)
    }
    assert published(daemon) == len(pages)
    package.wait_until(lambda: held(daemon) == (0, 0))

    # A salt of a request's own keeps it apart, from others without it as well.
    salted = second.call("run", PROMPTS[:1], 4, {"cache_salt": "mine"})
    assert salted["found"] == [0]
    assert first.call("run", PROMPTS[:1], 4, {"cache_salt": "mine"})["found"] == [512 - PAGE]
    # Several answers to one prompt, of which the first computes what the others share.
    several = {"n": 3, "temperature": 1.0, "seed": 5}
    (prompt,) = make_prompts(2, 0, 100)
    assert (
        second.call("run", [prompt], 40, several)["tokens"]
        == alone.call("run", [prompt], 40, several)["tokens"]
    )
    # For new weights: nothing is found by anybody.
    assert second.call("reset") is True
    assert first.call("run", PROMPTS[:1], 4)["found"] == [0]

    first.call("stop")
    second.call("stop")
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")


@pytest.mark.parametrize("mode", ["in_place", "copy"])
def test_a_producer_and_a_consumer(
    daemon: package.Daemon, start_engines: Any, settings: Any, mode: str
) -> None:
    """The consumer publishes nothing, and finds what the producer has published. The producer has
    its own cache: vLLM's with copies, kvleased's in place."""
    options = {"mode": mode, "verify": 0}
    alone, producer, consumer, both = start_engines(
        settings(),
        settings(daemon, role="kv_producer", kvlease=options),
        settings(daemon, role="kv_consumer", kvlease=options),
        settings(daemon, kvlease=options),
    )
    if mode == "in_place":
        # Pages go back to kvleased once the steps are over that write to them.
        waits = "self.engine.engine_core.engine_core.scheduler.defer_block_free"
        assert producer.call("do", f"assert {waits}") is None
    expected = alone.call("run", PROMPTS[:2], 24)
    assert consumer.call("run", PROMPTS[:1], 24)["tokens"] == expected["tokens"][:1]
    assert published(daemon) == 0
    computed = producer.call("run", PROMPTS[:1], 24)
    n_published = published(daemon)
    assert n_published >= len(PROMPTS[0]) // PAGE
    again = producer.call("run", PROMPTS[:1], 24)
    (n_full,) = findable(PROMPTS[:1], PAGE)
    assert again["found"] == [n_full]
    if mode == "copy":
        assert consumer.call("reset")  # vLLM's own cache has what it computed
    found = consumer.call("run", PROMPTS[:1], 24)
    assert found["found"] == [n_full]
    assert computed["tokens"] == again["tokens"] == found["tokens"] == expected["tokens"][:1]
    # Of what another engine has published a producer finds nothing where that was a load.
    both.call("run", PROMPTS[1:2], 24)
    shared = 500 // PAGE * PAGE
    other = producer.call("run", PROMPTS[1:2], 24)
    assert other["found"] == (findable(PROMPTS[1:2], PAGE) if mode == "in_place" else [shared])
    assert other["tokens"] == expected["tokens"][1:]
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_what_is_laid_out_otherwise_is_a_miss(
    daemon: package.Daemon, start_engines: Any, settings: Any, models: Any
) -> None:
    same, *others = start_engines(
        settings(daemon),
        settings(daemon, model=models(seed=1)),
        settings(daemon, model=models(rope_theta=20000.0)),
        settings(daemon, kvlease={"salt": "somebody else"}),
        settings(daemon, block_size=2 * PAGE),
        settings(daemon, dtype="bfloat16"),
    )
    same.call("run", PROMPTS[:1], 4)
    n_before = published(daemon)
    assert n_before == len(PROMPTS[0]) // PAGE
    for other in others:
        assert other.call("run", PROMPTS[:1], 4)["found"] == [0]
    assert published(daemon) > 4 * n_before


def test_windows_beside_full_attention(
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any, models: Any
) -> None:
    """Two groups of layers, of three and two, in pages of one namespace."""
    daemon = make_daemon(device=MEMORY, tenant="limit = 24MiB")
    kinds = ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"]
    options = {"model": models(num_hidden_layers=5, layer_types=kinds, sliding_window=64)}
    alone, first, second, third = start_engines(
        settings(**options),
        settings(daemon, **options),
        settings(daemon, **options),
        settings(daemon, kvlease={"verify": 1}, **options),
    )
    expected = alone.call("run", PROMPTS, 24)
    own = alone.call("run", PROMPTS, 24)["found"]
    assert own == findable(PROMPTS, PAGE)
    computed = first.call("run", PROMPTS, 24)
    assert computed["found"] == expected["found"]
    found = second.call("run", PROMPTS, 24)
    assert found["found"] == own
    # Pages of windows are published only where a later text can begin behind them.
    assert published(daemon) < 2 * sum(len(prompt) // PAGE for prompt in PROMPTS)
    checked = third.call("run", PROMPTS, 24)
    assert checked["found"] == [0] * len(PROMPTS)
    assert third.call("stats")["compared_pages"] > published(daemon) // 2
    assert failures(daemon) == 0
    for answer in (computed, found, checked):
        assert answer["tokens"] == expected["tokens"]
    package.wait_until(lambda: held(daemon) == (0, 0))

    # More texts than the tenant can have: engines compute evicted pages again.
    texts = make_prompts(5, 100, *range(400, 1500, 100))
    right = alone.call("run", texts, 8)["tokens"]
    first.send("run", texts, 8)
    assert second.call("run", texts, 8)["tokens"] == first.receive()["tokens"] == right
    first.call("add", PROMPTS[0], 1000)
    first.call("steps", 3)
    first.kill()
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert second.call("run", PROMPTS, 24)["tokens"] == expected["tokens"]
    assert "consistent" in ctl(daemon, "check")


def test_ranks_share_with_the_same_ranks(
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any, tmp_path: Path
) -> None:
    """Tensor parallelism: each of two ranks has its own heads, in its own part of a page, on its
    own member of a device that spans two."""
    daemon = make_daemon(name="tp2", device=f"members = host-1, host-2\n{MEMORY}", tenant=LIMIT)
    spanning = {"device": "tp2"}
    ranks = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
    ranks |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": 8}
    (first,) = start_engines(settings(daemon, kvlease=spanning, **ranks), environment=PROCESSES)
    alone, second = start_engines(settings(**ranks), settings(daemon, kvlease=spanning, **ranks))
    expected = alone.call("run", PROMPTS, 24)
    computed = first.call("run", PROMPTS, 24)
    found = second.call("run", PROMPTS, 24)
    assert computed["tokens"] == found["tokens"] == expected["tokens"]
    assert computed["found"] == expected["found"]
    assert found["found"] == findable(PROMPTS, PAGE)
    # An adapter is known once all ranks have loaded it.
    mine = {"adapter": make_adapter(tmp_path / "adapter", 1)}
    adapted = [each.call("run", PROMPTS[:1], 4, mine) for each in (alone, second, second)]
    assert all(each["tokens"] == adapted[0]["tokens"] for each in adapted)
    assert adapted[-1]["found"] == findable(PROMPTS[:1], PAGE)
    package.wait_until(lambda: held(daemon) == (0, 0))

    # One rank is killed in the middle of a step: the engine ends, and leaves what it published.
    first.call("add", PROMPTS[0], 1000)
    package.wait_until(lambda: held(daemon)[1] > len(PROMPTS[0]) // PAGE)
    os.kill(part_of(part_of(first.pid)), signal.SIGKILL)
    package.wait_until(lambda: held(daemon) == (0, 0))
    again = second.call("run", PROMPTS, 24)
    assert again["tokens"] == expected["tokens"]
    assert again["found"] == findable(PROMPTS, PAGE)
    assert "consistent" in ctl(daemon, "check")


@OWN_KERNELS
@pytest.mark.parametrize("n_ranks", [1, pytest.param(2, marks=FULL)])
@pytest.mark.parametrize("mode", ["in_place", "copy"])
def test_mla(
    daemon: package.Daemon,
    start_engines: Any,
    settings: Any,
    tmp_path: Path,
    mode: str,
    n_ranks: int,
) -> None:
    """All ranks have the same latent vectors: copied they are one plane of a page. In place each
    rank has its own: a GPU reads what is on it."""
    make_mla(tmp_path)
    options: dict[str, Any] = {"model": str(tmp_path)}
    if n_ranks > 1:
        options |= {"tensor_parallel_size": n_ranks, "distributed_executor_backend": "mp"}
    # vLLM has packed a weight where it can't be read.
    shared = {"kvlease": {"mode": mode, "weights": "mine"}} | options
    alone, first, second = start_engines(
        settings(**options),
        settings(daemon, **shared),
        settings(daemon, **shared),
        environment={"KVLEASE_TEST_AMX": "1"},
    )
    expected = alone.call("run", PROMPTS, 24)
    own = alone.call("run", PROMPTS, 24)["found"]
    assert own == findable(PROMPTS, PAGE)
    computed = first.call("run", PROMPTS, 24)
    found = second.call("run", PROMPTS, 24)
    assert computed["tokens"] == found["tokens"] == expected["tokens"]
    assert found["found"] == own
    assert found["logprobs"] == computed["logprobs"] == expected["logprobs"]
    (namespace,) = namespaces(daemon)
    n_layers = namespace["n_layers"]
    assert namespace["n_planes"] == (1 if mode == "copy" else n_ranks * n_layers)
    assert namespace["plane_page_bytes"] == PAGE * 576 * 4 * (n_layers if mode == "copy" else 1)


@FULL
@pytest.mark.parametrize("has_windows", [False, True])
def test_stages_share_with_the_same_stages(
    daemon: package.Daemon,
    start_engines: Any,
    settings: Any,
    models: Any,
    has_windows: bool,
) -> None:
    """Pipeline parallelism: of five layers the first stage has three, and the other one has as many
    planes of a page. With windows there are groups of which a stage has one layer, or none."""
    kinds = ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"]
    windows = {"layer_types": kinds, "sliding_window": 64} if has_windows else {}
    options = {"model": models(num_hidden_layers=5, **windows)}
    stages = options | {"pipeline_parallel_size": 2, "distributed_executor_backend": "mp"}
    shared = {"kvlease": {"verify": 1}} | stages
    alone, first, second, third = start_engines(
        settings(**options),
        settings(daemon, **stages),
        settings(daemon, **stages),
        settings(daemon, **shared),
    )
    expected = alone.call("run", PROMPTS, 24)
    computed = first.call("run", PROMPTS, 24)
    found = second.call("run", PROMPTS, 24)
    checked = third.call("run", PROMPTS, 24)
    for answer in (computed, found, checked):
        assert answer["tokens"] == expected["tokens"]
    assert found["found"] == findable(PROMPTS, PAGE)
    assert checked["found"] == [0] * len(PROMPTS)
    assert failures(daemon) == 0
    (namespace,) = namespaces(daemon)
    assert namespace["n_planes"] == (2 if has_windows else 2 * 3)
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_guessed_tokens(daemon: package.Daemon, start_engines: Any, settings: Any) -> None:
    """Speculative decoding: what was guessed and rejected is in no page that is found."""
    guess = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 2}
    guess["prompt_lookup_min"] = 1
    guessing = {"speculative_config": guess}
    alone, first, second, third = start_engines(
        settings(),
        settings(daemon, **guessing),
        settings(daemon, **guessing),
        settings(daemon, kvlease={"verify": 1}, **guessing),
        environment={"NUMBA_DISABLE_JIT": "1"},  # which guesses, and fails with this llvmlite
    )
    expected = alone.call("run", PROMPTS, 80)
    computed = first.call("run", PROMPTS, 80)
    texts = [p + t[0][:-1] for p, t in zip(PROMPTS, expected["tokens"], strict=True)]
    for engine in (second, third):
        again = engine.call("run", texts, 40)
        assert again["tokens"] == alone.call("run", texts, 40)["tokens"]
        is_verified = engine is third
        assert again["found"] == ([0] * 3 if is_verified else findable(texts, PAGE))
    assert computed["tokens"] == expected["tokens"]
    assert failures(daemon) == 0
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_blocks_that_are_zeroed(daemon: package.Daemon, start_engines: Any, settings: Any) -> None:
    """As vLLM does where layers have several dtypes: before it tells the connector of a step."""
    zeroing = {
        "before": "from vllm.v1.kv_cache_interface import KVCacheConfig\n"
        "KVCacheConfig.needs_kv_cache_zeroing = property(lambda self: True)"
    }
    alone, first, second = start_engines(
        settings(), settings(daemon) | zeroing, settings(daemon) | zeroing
    )
    expected = alone.call("run", PROMPTS, 24)
    assert first.call("run", PROMPTS, 24)["tokens"] == expected["tokens"]
    found = second.call("run", PROMPTS, 24)
    assert found["tokens"] == expected["tokens"]
    assert found["found"] == findable(PROMPTS, PAGE)


@OWN_KERNELS
def test_blocks_in_one_piece(
    daemon: package.Daemon, start_engines: Any, settings: Any, models: Any
) -> None:
    """As on GPUs, where a block has the parts of all layers: they are in one plane. The CPU's own
    kernels take layers apart alone; the tests' take any."""
    kinds = ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"]
    options = {"model": models(num_hidden_layers=5, layer_types=kinds, sliding_window=64)}
    whole = {
        "before": "from vllm.v1.attention.backends.cpu_attn import *\n"
        "CPUAttentionBackend.supported_kv_cache_layouts = lambda: (KVCacheLayout.BLHNC,)"
    }
    alone, first, second, third = start_engines(
        settings(**options),
        settings(daemon, **options) | whole,
        settings(daemon, **options) | whole,
        settings(daemon, kvlease={"verify": 1}, **options) | whole,
    )
    expected = alone.call("run", PROMPTS, 24)
    assert first.call("run", PROMPTS, 24)["tokens"] == expected["tokens"]
    found = second.call("run", PROMPTS, 24)
    assert found["tokens"] == expected["tokens"]
    assert found["found"] == findable(PROMPTS, PAGE)
    assert third.call("run", PROMPTS, 24)["tokens"] == expected["tokens"]
    assert third.call("stats")["compared_pages"] > published(daemon) // 2
    assert failures(daemon) == 0
    (namespace,) = namespaces(daemon)
    assert namespace["n_planes"] == 1 < namespace["n_layers"]
    package.wait_until(lambda: held(daemon) == (0, 0))
