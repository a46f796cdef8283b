"""Models and adapters that change, or look alike: what is found is what would be computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kvlease_conftest as package
import pytest
import serving
from models import make_adapter
from support import findable, held, make_prompts

import kvlease.vllm.weights as adapter
from kvlease.vllm.weights import State

PAGE = 32
PROMPTS = make_prompts(1, 200, 7, 40)
FULL = 200 // PAGE * PAGE
WAYS = pytest.mark.parametrize("way", ["in place", "copies"])
# API, EngineCore and worker, as vllm serve has them.
PROCESSES = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}

RELOAD = "self.engine.collective_rpc('reload_weights', kwargs={'weights_path': %r})"
# As trainers do that have the model of an engine in their process.
LOAD = """
model = self.engine.model_executor.driver_worker.model_runner.model
with torch.no_grad():
    torch.manual_seed(5)
    model.load_weights([("model.layers.0.mlp.down_proj.weight", torch.randn(128, 344) * 0.2)])
"""
KEPT = """
for p in self.kept.parameters():
    p.data.mul_(1.05)
"""
# Nothing that torch counts.
UNSEEN = """
def change(worker):
    import ctypes
    w = worker.model_runner.model.model.layers[0].mlp.down_proj.weight
    for i in range(0, w.numel(), 7):
        ctypes.c_float.from_address(w.data_ptr() + 4 * i).value *= 1.5
self.engine.collective_rpc(change)
"""
CODE = """
def change(model):
    plain = model.model.layers[1].mlp.forward
    model.model.layers[1].mlp.forward = lambda x: plain(x) * 1.3
self.llm.apply_model(change)
"""
KEEP = "self.kept = self.engine.model_executor.driver_worker.model_runner.model"
# The files are another model's once the first one's were read.
REPLACE = """
import os, shutil
from vllm.v1.worker.cpu_worker import CPUWorker
load = CPUWorker.load_model
def replace(self, *arguments, **keywords):
    load(self, *arguments, **keywords)
    folder = self.vllm_config.model_config.model
    shutil.copy(%r + "/model.safetensors", folder + "/new")
    os.replace(folder + "/new", folder + "/model.safetensors")
CPUWorker.load_model = replace
"""
PATCH = """
from vllm.model_executor.models.llama import LlamaMLP
plain = LlamaMLP.forward
LlamaMLP.forward = lambda self, x: plain(self, x) * 1.2
"""

Start = Callable[..., Any]


@pytest.fixture
def on(settings: Any) -> Callable[..., dict[str, Any]]:
    """on(daemon, way, before=..., options of vLLM): settings of an engine."""

    def make(daemon: Any, way: str, before: str = "", **options: Any) -> dict[str, Any]:
        mode = {"mode": "in_place" if way == "in place" else "copy"}
        made: dict[str, Any] = settings(daemon, kvlease=mode, **options)
        return made | {"before": before}

    return make


def run(engine: Any, **options: Any) -> tuple[list[Any], list[int]]:
    """Tokens, and how many of each prompt weren't computed; each prompt by itself."""
    got = [engine.call("run", [prompt], 16, options) for prompt in PROMPTS]
    return [each["tokens"][0] for each in got], [each["found"][0] for each in got]


@WAYS
def test_a_model_that_changes(
    daemon: package.Daemon,
    start_engines: Start,
    settings: Any,
    on: Any,
    models: Callable[..., str],
    model: str,
    way: str,
) -> None:
    """In each way: the engine finds nothing of before, and another one nothing of it; it finds its
    pages again where it comes back, and those of whoever has changed in the same way."""
    alone, first, second, other = start_engines(
        settings(), on(daemon, way), on(daemon, way), on(daemon, way)
    )
    (before, _) = run(alone)
    assert run(first)[0] == before
    for engine in (alone, first, second):
        engine.call("do", KEEP)
    seen = [before]
    # vLLM's own kernels for CPUs compute with packed copies, which these don't reach.
    copied = (LOAD, KEPT, UNSEEN) if serving.KERNELS else ()
    for change in (RELOAD % models(1), *copied, CODE):
        for engine in (alone, first, second):
            engine.call("change", change)
        expected = run(alone)[0]
        assert expected not in seen, change
        seen.append(expected)
        # What the prompts share the first one has computed.
        assert run(first) == (expected, [0, FULL]), change
        tokens, found = run(second)
        assert (tokens, found[0]) == (expected, FULL), change
    tokens, found = run(other)
    assert (tokens, found[0]) == (before, FULL)
    for engine in (alone, first):
        engine.call("change", "self.kept.model.layers[1].mlp.__dict__.pop('forward')")
        engine.call("change", RELOAD % model)
    assert run(alone)[0] == before
    tokens, found = run(first)
    assert (tokens, found[0]) == (before, FULL)
    package.wait_until(lambda: held(daemon) == (0, 0))


@WAYS
def test_a_model_that_changes_under_requests(
    daemon: package.Daemon, start_engines: Start, settings: Any, on: Any, way: str
) -> None:
    """They go on with what both models computed, which is nobody's; and without a reset vLLM's own
    blocks of before aren't anybody's either."""
    alone, engine, other = start_engines(settings(), on(daemon, way), on(daemon, way))
    prompt = PROMPTS[0]
    for each in (alone, engine, other):
        each.call("do", KEEP)
    alone.call("change", KEPT)
    other.call("change", KEPT)
    request = engine.call("add", prompt, 200)
    engine.call("steps", 40)
    engine.call("do", KEPT)
    results: list[Any] = []
    while not results:
        results = engine.call("steps", 40)
    assert results[0]["id"] == request
    texts = [prompt + results[0]["tokens"][0], prompt]
    engine.call("run", texts, 8)
    got = other.call("run", texts, 8)
    assert got["tokens"] == alone.call("run", texts, 8)["tokens"]


def test_processes_of_an_engine(
    daemon: package.Daemon, start_engines: Start, settings: Any, models: Callable[..., str]
) -> None:
    """The scheduler hears of what changes in a worker of another process."""
    (engine,) = start_engines(
        settings(daemon, distributed_executor_backend="mp"), environment=PROCESSES
    )
    alone, other = start_engines(settings(), settings(daemon))
    before = run(alone)[0]
    assert run(engine)[0] == before
    for each in (engine, alone):
        each.call("change", RELOAD % models(1))
    assert run(engine) == (run(alone)[0], [0, FULL])
    tokens, found = run(other)
    assert (tokens, found[0]) == (before, FULL)


@WAYS
@pytest.mark.parametrize("what", ["files", "code"])
def test_another_model_finds_nothing(
    daemon: package.Daemon,
    start_engines: Start,
    settings: Any,
    on: Any,
    models: Callable[..., str],
    way: str,
    what: str,
) -> None:
    folder = models()
    before = REPLACE % models(1) if what == "files" else PATCH
    (odd,) = start_engines(on(daemon, way, before, model=folder))
    alone, engine = start_engines(settings(model=folder), on(daemon, way, model=folder))
    expected = run(alone)[0]
    assert run(odd)[0] != expected
    assert run(engine) == (expected, [0, FULL])


@WAYS
def test_adapters(
    daemon: package.Daemon,
    start_engines: Start,
    settings: Any,
    on: Any,
    tmp_path: Path,
    way: str,
) -> None:
    """By their tensors, not by their names; also of one that is replaced under its name."""
    lora = {"enable_lora": True, "max_loras": 1, "max_lora_rank": 8}
    alone, first, second = start_engines(
        settings(**lora), on(daemon, way, **lora), on(daemon, way, **lora)
    )
    mine = make_adapter(tmp_path / "adapter", 1)
    plain = run(alone)[0]
    expected = run(alone, adapter=mine)[0]
    assert expected != plain
    # It is known once it is loaded.
    assert run(first, adapter=mine)[0] == expected
    assert run(first, adapter=mine) == (expected, findable(PROMPTS, PAGE))
    assert run(second, adapter=mine)[0] == expected
    tokens, found = run(second, adapter=mine)
    assert (tokens, found[0]) == (expected, FULL)
    assert run(second)[0] == plain
    # Another one in its place, which the second engine loads anew, and the first has as it was.
    make_adapter(tmp_path / "adapter", 2)
    inplace = "from vllm.lora.request import LoRARequest\n"
    inplace += f"self.engine.add_lora(LoRARequest(*{mine!r}, load_inplace=True))"
    for engine in (alone, second):
        engine.call("change", inplace)
    changed = run(alone, adapter=mine)[0]
    assert changed not in (plain, expected)
    assert run(second, adapter=mine) == (changed, [0, FULL])
    assert run(first, adapter=mine) == (expected, findable(PROMPTS, PAGE))


def test_boards_are_read_as_they_are_written() -> None:
    """Also by others, and not in the middle."""
    board = adapter._Board()
    place = adapter.Place(adapter.os.getpid(), board.fd, b"")
    board.write(State())
    reader = adapter.Reader([place])
    seen = reader.state()
    assert reader.state() is seen
    state = State(3, False, bytes(32), {1: (2, b"a" * 32), 7: (1, b"b" * 32)})
    board.write(state)
    assert reader.state() == state
    # Its writer ended there.
    adapter.struct.pack_into("<Q", board._memory, 0, board.number() + 1)
    assert not reader.state().is_known
    reader.close()
    board.close()
    with pytest.raises(ValueError, match="can't ask its worker"):
        adapter.Reader([place])


def test_what_a_text_is_computed_with() -> None:
    """It isn't known before the adapter is loaded, and over where that, or the model, changes."""

    class Request:
        lora_int_id, load_inplace = 7, False

    none, one, two = State(), State(adapters={7: (1, b"a")}), State(adapters={7: (2, b"b")})
    begun = none.begin(Request)
    assert not none.can_share(begun)
    late = one.go_on(begun)
    assert late == one.begin(Request) and one.can_share(late)
    assert two.go_on(begun) is two.go_on(late) is State(1).go_on(none.begin(None)) is None
    keys = {
        State(root=r).keys(e, [b"k"])[0] for r in (None, b"r") for e in (late, none.begin(None))
    }
    assert len(keys) == 4 and b"k" in keys
    assert one.keys(late, [b"k"]) != two.keys(two.begin(Request), [b"k"])
    both = adapter._combine([one, State(1, root=b"r", adapters={7: (2, b"c"), 8: (1, b"d")})])
    assert (both.n_changes, both.is_known, set(both.adapters)) == (1, True, {7})


@pytest.mark.parametrize("loaded", [b"aa", b"ab"])
def test_each_rank_knows_its_adapter(loaded: bytes) -> None:
    """Among those of all ranks, whether these are the same or parts of one (experts)."""
    digests = [bytes([each]) * 32 for each in loaded]
    both = adapter._combine([State(adapters={7: (1, digest)}) for digest in digests])
    expected = [(7, both.adapters[7][1])]
    for rank, digest in enumerate(digests):
        watch = object.__new__(adapter.Watch)
        watch.rank, watch._adapters = rank, {7: (1, digest)}
        watch.is_read_here, watch.asleep = True, {"weights"}  # it isn't looked at
        watch.begin_step(expected)
        watch._adapters = {7: (2, b"c" * 32)}
        with pytest.raises(RuntimeError, match="have changed"):
            watch.begin_step(expected)
