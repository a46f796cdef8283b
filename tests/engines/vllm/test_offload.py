"""Engines that copy their blocks into kvlease's pages and back, on the CPU."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kvlease_conftest as package
import pytest
from contract import FULL
from support import (
    MEMORY,
    ctl,
    findable,
    held,
    make_prompts,
    namespaces,
    published,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    SchedulerOffloadConfig,
)

from kvlease.vllm import plan

COPY, AUTO = {"mode": "copy"}, {"mode": "auto"}
PAGE = 32
PROMPTS = make_prompts(1, 500, 7, 20, 33)
Copying = Callable[..., dict[str, Any]]


@pytest.fixture
def copying(settings: Any) -> Copying:
    """settings() of an engine that copies."""

    def make(daemon: Any, kvlease: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        made: dict[str, Any] = settings(daemon, kvlease=COPY | (kvlease or {}), **options)
        return made

    return make


def test_a_second_process_loads_what_the_first_computed(
    daemon: package.Daemon, start_engines: Any, settings: Any, copying: Copying
) -> None:
    alone, first, second, foreign, chunks = start_engines(
        settings(),
        copying(daemon),
        copying(daemon),
        settings(daemon),
        copying(daemon, kvlease={"blocks_per_chunk": 2, "offload_prompt_only": False}),
    )
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
    pages = {
        tuple(prompt[: end + PAGE])
        for prompt in PROMPTS
        for end in range(0, len(prompt) - PAGE + 1, PAGE)
    }
    assert published(daemon) == len(pages)
    package.wait_until(lambda: held(daemon) == (0, 0))

    # What is laid out otherwise is a miss: of the connector that copies nothing, of larger chunks.
    for other in (foreign, chunks):
        got = other.call("run", PROMPTS[:1], 24)
        assert got["tokens"] == expected["tokens"][:1]
        assert got["found"] == [0]
    # Generated tokens' chunks, where the user wants them; the last one is stored after its end.
    chunks.call("steps", 3)
    n_tokens = len(PROMPTS[0]) + 24 - 1
    assert published(daemon) == len(pages) + n_tokens // PAGE + n_tokens // (2 * PAGE)

    # A salt of a request's own keeps it apart. For new weights: nothing is found by anybody.
    assert second.call("run", PROMPTS[:1], 4, {"cache_salt": "mine"})["found"] == [0]
    assert first.call("run", PROMPTS[:1], 4, {"cache_salt": "mine"})["found"] == [512 - PAGE]
    assert second.call("reset", True) is True
    assert first.call("reset") is True
    assert first.call("run", PROMPTS[:1], 4)["found"] == [0]

    # What a killed engine has stored is there for the next one; what it held isn't lost.
    for prompt in make_prompts(7, 160, *range(300, 620, 40)):
        first.call("add", prompt, 1000)
    first.call("steps", 3)
    assert held(daemon) > (0, 0)
    first.kill()
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert second.call("run", PROMPTS[:1], 4)["found"] == [512 - PAGE]
    for engine in (second, foreign, chunks):
        engine.call("stop")
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")


RECORDED = """
import kvlease.vllm.transfers as transfers
self.waited, wait = [], transfers.StepLoads.wait
def recorded(loads, layer=None):
    if loads._begun:
        self.waited.append(layer)
    wait(loads, layer)
transfers.StepLoads.wait = recorded
"""
"""Keeps the layers for which a step waits."""


@pytest.mark.skipif(
    "sync_load_budget_bytes" not in SchedulerOffloadConfig._fields,
    reason="this vLLM loads nothing within a step",
)
def test_a_step_waits_for_its_layers(
    daemon: package.Daemon, start_engines: Any, settings: Any, copying: Copying
) -> None:
    """With sync_load_budget_bytes."""
    within = copying(daemon, kvlease={"sync_load_budget_bytes": 1 << 30})
    alone, first, second = start_engines(settings(), copying(daemon), within | {"before": RECORDED})
    expected = alone.call("run", PROMPTS[:1], 24)
    assert first.call("run", PROMPTS[:1], 24)["tokens"] == expected["tokens"]
    found = second.call("run", PROMPTS[:1], 24)
    assert found["tokens"] == expected["tokens"]
    assert found["found"] == findable(PROMPTS[:1], PAGE)
    layers = [f"model.layers.{i}.self_attn.attn" for i in range(3)]
    check = f"assert self.waited == {[*layers, None]}, self.waited"
    assert second.call("do", check) is None
    # The engine has these blocks in its own cache, and waits for no layer.
    assert second.call("run", PROMPTS[:1], 24)["tokens"] == expected["tokens"]
    assert second.call("do", check) is None
    package.wait_until(lambda: held(daemon) == (0, 0))


# API, EngineCore and worker, as vllm serve has them.
PROCESSES = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}


@FULL
def test_one_of_several_connectors(
    daemon: package.Daemon, start_engines: Any, settings: Any, tmp_path: Path
) -> None:
    """vLLM's ExampleConnector, which keeps files, is beside kvlease: each of them finds what it has
    stored, whichever is asked first, and hears the handshake of its own worker."""

    def beside(folder: str, is_first: bool, **kvlease: Any) -> dict[str, Any]:
        other = {
            "kv_connector": "Beside",
            "kv_connector_module_path": "beside",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"shared_storage_path": str(tmp_path / folder)},
        }
        # Files have what the first step of a prompt computes.
        options = {"max_num_batched_tokens": 2048, "disable_log_stats": False}
        options["disable_hybrid_kv_cache_manager"] = True
        made: dict[str, Any] = settings(daemon, kvlease=AUTO | kvlease, **options)
        return made | {"connectors": [other, None] if is_first else [None, other]}

    alone, plain = start_engines(settings(), settings(daemon, kvlease=COPY))
    first, second, third = start_engines(
        beside("a", is_first=True),
        beside("b", is_first=True),
        beside("a", is_first=False, salt="finds nothing"),
        environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    )
    expected = alone.call("run", PROMPTS, 24)
    computed = first.call("run", PROMPTS, 24)
    # The files are of whole prompts: of kvlease one engine finds all full blocks, without them.
    for engine in (plain, second, third):
        found = engine.call("run", PROMPTS, 24)
        assert found["found"] == findable(PROMPTS, PAGE)
        assert found["tokens"] == computed["tokens"] == expected["tokens"]
    with pytest.raises(AssertionError, match="t share in place: a MultiConnector"):
        start_engines(beside("a", is_first=True, mode="in_place"))
    package.wait_until(lambda: held(daemon) == (0, 0))


@FULL
@pytest.mark.skipif(not importlib.util.find_spec("nixl"), reason="the package nixl isn't there")
def test_beside_nixl(daemon: package.Daemon, start_engines: Any, settings: Any) -> None:
    """vLLM's NixlConnector is beside kvlease. It brings the blocks of a prompt from the engine that
    computed them, and kvlease finds those of prompts that nobody brings."""
    nixl = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
    made = settings(daemon, kvlease=COPY, disable_log_stats=False) | {"connectors": [nixl, None]}
    (alone,) = start_engines(settings())
    prefill, decode = (
        start_engines(made, environment={"VLLM_NIXL_SIDE_CHANNEL_PORT": str(port)})[0]
        for port in free_ports(2)
    )
    expected = alone.call("run", PROMPTS, 24)["tokens"]
    there = {"extra_args": {"kv_transfer_params": {"do_remote_decode": True}}}
    computed = prefill.call("run", PROMPTS[:1], 1, there)
    (transfer,) = computed["transfers"]
    assert transfer["do_remote_prefill"]
    brought = {"extra_args": {"kv_transfer_params": transfer}}
    decode.send("run", PROMPTS[:1], 24, brought)
    while not decode.has_answer():
        prefill.call("steps", 1)  # in which it hears that its blocks were read
    answer = decode.receive()
    # What is brought doesn't count as found.
    assert decode.call("metric", "external_prefix_cache_hits") == len(PROMPTS[0])
    assert answer["tokens"] == expected[:1]
    assert prefill.call("run", PROMPTS, 24)["tokens"] == expected
    assert decode.call("reset")
    answer = decode.call("run", PROMPTS, 24)
    assert answer["found"] == findable(PROMPTS, PAGE)
    assert answer["tokens"] == expected
    package.wait_until(lambda: held(daemon) == (0, 0))


def free_ports(n: int) -> list[int]:
    """Of this host."""
    with contextlib.ExitStack() as stack:
        free = [stack.enter_context(socket.socket()) for _ in range(n)]
        for each in free:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in free]


@FULL
@pytest.mark.parametrize("axis", ["tensor", "pipeline"])
def test_ranks_with_copies(
    daemon: package.Daemon, start_engines: Any, settings: Any, models: Any, axis: str
) -> None:
    """Two groups of layers, of which one stores and loads windows alone. Each rank copies its own
    part, in a process of its own."""
    ranks = {"distributed_executor_backend": "mp", f"{axis}_parallel_size": 2}
    # The first stage of a pipeline has three layers, and the second one two.
    kinds = ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"]
    n_layers = 4 if axis == "tensor" else 5
    layers = {"num_hidden_layers": n_layers, "layer_types": kinds[:n_layers], "sliding_window": 64}
    options = {"model": models(**layers), **ranks}
    (first,) = start_engines(settings(daemon, kvlease=COPY, **options), environment=PROCESSES)
    (second,) = start_engines(settings(daemon, kvlease=COPY, **options))
    computed = first.call("run", PROMPTS, 24)
    n_pages = sorted(each["pages_sealed"] for each in namespaces(daemon))
    assert len(n_pages) == (2 if axis == "tensor" else 3)
    assert 0 < n_pages[0] < n_pages[-1]
    assert all(" copies " in each["format"] for each in namespaces(daemon))
    if axis == "tensor":
        config = json.loads((Path(options["model"]) / "config.json").read_text())
        planned = plan.make(config, 2, PAGE, "float32")
        assert sorted(each.page_bytes(PAGE, 2) for each in planned.layers) == sorted(
            each["plane_page_bytes"] * each["n_planes"] for each in namespaces(daemon)
        )
    found = second.call("run", PROMPTS, 24)
    assert found["tokens"] == computed["tokens"]
    assert found["found"] == findable(PROMPTS, PAGE)
    package.wait_until(lambda: held(daemon) == (0, 0))
    first.kill()
    second.call("stop")
    assert "consistent" in ctl(daemon, "check")


def test_the_best_mode_is_chosen(daemon: package.Daemon, start_engines: Any, settings: Any) -> None:
    """In place where nothing keeps from it, else with copies; here a setting of theirs does."""
    # Guessing isn't compiled here: it takes longer than the model, by the tokens of a prompt.
    prompts = make_prompts(1, 100, 7, 20)
    guess = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
    copied = AUTO | {"offload_prompt_only": True}
    alone, plain, first, second = start_engines(
        settings(),
        settings(daemon, kvlease=AUTO),
        settings(daemon, kvlease=copied, speculative_config=guess),
        settings(daemon, kvlease=copied, speculative_config=guess),
        environment={"NUMBA_DISABLE_JIT": "1"},  # which guesses, and fails with this llvmlite
    )
    expected = alone.call("run", prompts, 24)
    assert plain.call("run", prompts, 24)["tokens"] == expected["tokens"]
    (copies,) = (each for each in namespaces(daemon) if " copies " in each["format"])
    (in_place,) = (each for each in namespaces(daemon) if each["name"] != copies["name"])
    assert in_place["pages_sealed"] > 0 == copies["pages_sealed"]
    assert first.call("run", prompts, 24)["tokens"] == expected["tokens"]
    found = second.call("run", prompts, 24)
    assert found["tokens"] == expected["tokens"]
    assert found["found"] == findable(prompts, PAGE)


def test_a_device_that_is_too_small(
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any
) -> None:
    """For a text of --max-model-len: its pages can't be vLLM's blocks, but hold copies."""
    daemon = make_daemon(device="memory = 2MiB\nextent = 2MiB", tenant="limit = 2MiB")
    alone, engine = start_engines(settings(), settings(daemon, kvlease=AUTO))
    expected = alone.call("run", PROMPTS, 4)
    assert engine.call("run", PROMPTS, 4)["tokens"] == expected["tokens"]
    (only,) = (each for each in namespaces(daemon) if each["pages_sealed"])
    assert " copies " in only["format"]
    assert engine.call("reset") is True
    found = engine.call("run", PROMPTS[:1], 4)
    assert found["tokens"] == expected["tokens"][:1] and found["found"] > [0]


# Every third transfer ends so, as where kvleased goes away at that moment.
LOSING = """
from kvlease.vllm.transfers import Worker
numbers, map_pages = iter(range(1_000_000)), Worker._map
Worker._map = lambda worker, pages: map_pages(worker, pages) if next(numbers) % 3 else None
"""


def test_what_cannot_be_copied_is_computed(
    daemon: package.Daemon, start_engines: Any, settings: Any, copying: Copying
) -> None:
    alone, first, second = start_engines(
        settings(), copying(daemon) | {"before": LOSING}, copying(daemon) | {"before": LOSING}
    )
    prompts = [prompt for seed in range(6) for prompt in make_prompts(seed, 500, 7)]
    expected = [alone.call("run", [prompt], 8)["tokens"] for prompt in prompts]
    for engine in (first, second):
        assert [engine.call("run", [prompt], 8)["tokens"] for prompt in prompts] == expected
    second.call("reset")
    found = [second.call("run", [prompt], 8) for prompt in prompts]
    assert [each["tokens"] for each in found] == expected
    assert any(each["found"] == findable(PROMPTS[:1], PAGE) for each in found)
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_pressure_aborts_and_killed_daemons(
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any, copying: Copying
) -> None:
    """Nothing of it is seen in tokens, and nothing stays held."""
    daemon = make_daemon(keep=True, device=MEMORY, tenant="limit = 12MiB")
    # Blocks of its own for two or three of the requests: the others are preempted.
    few = {"num_gpu_blocks_override": 64, "max_model_len": 1024}
    (other,) = start_engines(
        copying(daemon, distributed_executor_backend="mp", **few), environment=PROCESSES
    )
    alone, engine = start_engines(settings(**few), copying(daemon, **few))
    prompts = make_prompts(7, 160, *range(300, 620, 40))
    more = make_prompts(8, 160, *range(300, 620, 40))
    expected = [alone.call("run", each, 24)["tokens"] for each in (prompts, more)]

    # Both want more than the tenant may have, which shrinks meanwhile.
    engine.send("run", prompts, 24)
    other.send("run", more, 24)
    ctl(daemon, "tenants", "set", "a", "limit=6MiB")
    assert [engine.receive()["tokens"], other.receive()["tokens"]] == expected
    assert other.call("run", prompts, 24)["tokens"] == expected[0]
    package.wait_until(lambda: held(daemon) == (0, 0))

    for n_steps in (1, 2, 5):
        requests = [engine.call("add", prompt, 300) for prompt in prompts + more]
        engine.call("steps", n_steps)
        for request in requests:
            engine.call("abort", request)
        engine.call("steps", 3)
        package.wait_until(lambda: held(daemon) == (0, 0))

    numbers = random.Random(3)
    for _ in range(3):
        engine.send("run", prompts, 24)
        other.send("run", prompts, 24)
        for _ in range(2):
            time.sleep(numbers.uniform(0, 0.3))
            daemon.kill()
        assert [engine.receive()["tokens"], other.receive()["tokens"]] == [expected[0]] * 2
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")
    assert max(other.call("run", prompts, 4)["found"]) >= 160

    # Gone for good.
    engine.send("run", prompts, 24)
    daemon.stop()
    assert engine.receive()["tokens"] == expected[0]
    assert other.call("run", more, 24)["tokens"] == expected[1]
    other.call("stop")
