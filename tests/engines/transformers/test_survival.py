"""What happens around an engine: others take its memory, processes are killed, layouts differ."""

from __future__ import annotations

import time
from typing import Any

import kvlease_conftest as package
import pytest
from contract import full
from support import MEMORY, ctl, held, make_prompts, on

PAGE = 16
# Of 24 KiB: some 40 a prompt. A set of 2 MiB has 85.
PROMPTS = make_prompts(7, 160, *range(300, 300 + 8 * 40, 40))


def test_more_requests_than_memory(make_daemon: package.MakeDaemon, start_engines: Any) -> None:
    """Both engines want more than the tenant may have, which shrinks while they compute."""
    daemon = make_daemon(device=MEMORY, tenant="limit = 8MiB")
    alone, first, second = start_engines({}, on(daemon), on(daemon))
    other = make_prompts(8, 160, *range(300, 300 + 8 * 40, 40))
    expected = alone.call("run", PROMPTS, 12), alone.call("run", other, 12)
    first.send("run", PROMPTS, 12)
    second.send("run", other, 12)
    ctl(daemon, "tenants", "set", "a", "limit=4MiB")
    got = first.receive(), second.receive()
    assert [each["tokens"] for each in got] == [each["tokens"] for each in expected]
    assert [each["errors"] for each in got] == [[], []]
    package.wait_until(lambda: held(daemon) == (4, 0))
    assert "consistent" in ctl(daemon, "check")


def test_waits_for_what_others_hold(make_daemon: package.MakeDaemon, start_engines: Any) -> None:
    """Another client has leased all but what is left of the engine's set, where no prompt fits."""
    daemon = make_daemon(device=MEMORY, tenant="limit = 8MiB")
    alone, engine = start_engines({}, on(daemon))
    prompts = make_prompts(11, 0, 1500, 1600)
    expected = alone.call("run", prompts, 12)
    with full(daemon):
        engine.send("run", prompts, 12)
        time.sleep(1)
        assert not engine.has_answer()
    got = engine.receive()
    assert (got["tokens"], got["errors"]) == (expected["tokens"], [])


@pytest.mark.parametrize("scheduler", ["fifo", "prefill_first"])
def test_texts_beyond_the_limit_end_alone(
    make_daemon: package.MakeDaemon, start_engines: Any, scheduler: str
) -> None:
    """Also where the limit was lowered since: requests behind them are answered."""
    # Two sets of 85 pages, of which the engine keeps two pages.
    daemon = make_daemon(device=MEMORY, tenant="limit = 4MiB")
    endless = {"generation": {"eos_token_id": -1}, "batching": {"scheduler_type": scheduler}}
    alone, engine = start_engines(endless, on(daemon) | endless)
    beyond, fits, short = (make_prompts(i, 0, n)[0] for i, n in enumerate((2690, 1500, 40)))
    (expected,) = alone.call("run", [short], 6)["tokens"]

    def answer(text: list[int], n_tokens: int) -> str:
        """The sentence of the one that can't be held, with another one behind it."""
        refused = engine.call("add", text, n_tokens)
        behind = engine.call("add", short, 6)
        results = [engine.call("result", 60) for _ in range(2)]
        by_id = {each["id"]: each for each in results}
        assert by_id[behind]["tokens"] == expected
        assert by_id[refused]["tokens"] == []
        return str(by_id[refused]["error"])

    assert "tenants set a limit=6120KiB" in answer(beyond, 6)
    # So does one that asks for more tokens than there is room for.
    assert "tenants set a limit=6120KiB" in answer(fits, 1500)
    ctl(daemon, "tenants", "set", "a", "limit=2MiB")
    assert "tenants set a limit=4080KiB" in answer(fits, 6)


def test_a_limit_that_is_lowered(make_daemon: package.MakeDaemon, start_engines: Any) -> None:
    """While two texts are computed that don't fit together any more, and alone neither. What the
    engine was told to give back, and has mapped, isn't had again where the limit is raised."""
    daemon = make_daemon(device=MEMORY, tenant="limit = 4MiB")
    endless = {"generation": {"eos_token_id": -1}}
    alone, engine = start_engines(endless, on(daemon) | endless)
    fits, other, short = (make_prompts(i, 0, n)[0] for i, n in enumerate((1500, 1500, 40)))
    (expected,) = alone.call("run", [short], 6)["tokens"]
    for text in (fits, other):
        engine.call("add", text, 600)
    package.wait_until(lambda: sum(held(daemon)) > 100)
    ctl(daemon, "tenants", "set", "a", "limit=2MiB")
    results: list[dict[str, Any]] = []
    while len(results) < 2:
        results += filter(None, [engine.call("result", 1)])
    assert any("tenants set a limit=4080KiB" in str(each["error"]) for each in results)
    assert engine.call("run", [short], 6)["tokens"] == [expected]
    ctl(daemon, "tenants", "set", "a", "limit=4MiB")
    # Soon, or once the time is over that processes have for it.
    (error,) = engine.call("run", [fits], 6)["errors"]
    assert "told to give back" in error
    assert "tenants set a limit=6120KiB" in error
    assert engine.call("run", [short], 6)["tokens"] == [expected]
    package.wait_until(lambda: held(daemon) == (2, 0))


def test_texts_beyond_the_engines_own_blocks(daemon: package.Daemon, start_engines: Any) -> None:
    endless = {"generation": {"eos_token_id": -1}}
    few = {"batching": {"num_blocks": 20}}
    alone, engine = start_engines(endless, on(daemon) | endless | few)
    long, short = (make_prompts(i, 0, n)[0] for i, n in ((1, 330), (3, 40)))
    (expected,) = alone.call("run", [short], 6)["tokens"]
    got = engine.call("run", [long, short], 6)
    assert got["tokens"] == [[], expected]
    assert "num_blocks" in got["errors"][0]
    # One that has no end goes as far as there is room.
    got = engine.call("run", [short], None)
    assert len(got["tokens"][0]) == 20 * PAGE - 40 + 1
    assert "num_blocks" in got["errors"][0]
    # Of several continuations of a text none is missed.
    (engine,) = start_engines(
        on(daemon) | few | {"generation": {"num_return_sequences": 3, "do_sample": True}}
    )
    assert len(engine.call("run", [long], 6)["errors"]) == 3


@pytest.mark.parametrize(
    ("memory", "given"),
    [
        ("256MiB", {}),
        ("8GiB", {}),
        ("256MiB", {"num_blocks": 64}),
        ("8GiB", {"max_batch_tokens": 64}),
    ],
)
def test_sizes_that_are_left_open(
    make_daemon: package.MakeDaemon, start_engines: Any, memory: str, given: dict[str, int]
) -> None:
    """The engine alone would take nearly all memory of the machine."""
    daemon = make_daemon(device=f"memory = {memory}", tenant=f"limit = {memory}")
    left = {"num_blocks": None, "max_batch_tokens": None}
    (engine,) = start_engines(on(daemon) | {"batching": left | given})
    assert engine.call("run", PROMPTS[:1], 4)["errors"] == []
    sizes = engine.call("sizes")
    assert 0 < sizes["masks"] <= 272 << 20
    assert sizes["blocks"] == given.get("num_blocks", sizes["blocks"])
    assert sizes["blocks"] >= 64
    assert sizes["batch"] == given.get("max_batch_tokens", max(sizes["batch"], 512))


def test_a_limit_below_one_page_is_refused(
    make_daemon: package.MakeDaemon, start_engines: Any
) -> None:
    daemon = make_daemon(device=MEMORY, tenant="limit = 1MiB")
    (engine,) = start_engines(on(daemon))
    got = str(engine.call("run", PROMPTS[:1], 4))
    assert "limit of 1 MiB of tenant a" in got
    assert "limit=2040KiB" in got


def test_forks_share_pages(daemon: package.Daemon, start_engines: Any) -> None:
    three = {"generation": {"num_return_sequences": 3, "do_sample": True, "top_k": 1}}
    alone, engine = start_engines(three, on(daemon) | three)
    expected = alone.call("run", PROMPTS[:2], 40)["all"]
    got = engine.call("run", PROMPTS[:2], 40)["all"]
    assert len(got) == 6
    assert sorted(got.values()) == sorted(expected.values())
    package.wait_until(lambda: held(daemon) == (2, 0))
    assert "consistent" in ctl(daemon, "check")


def test_cancelled_requests_give_back(daemon: package.Daemon, start_engines: Any) -> None:
    (engine,) = start_engines(on(daemon))
    requests = [engine.call("add", prompt, 2000) for prompt in PROMPTS]
    package.wait_until(lambda: held(daemon) > (2, 0))
    for request in requests:
        engine.call("cancel", request)
    package.wait_until(lambda: held(daemon) == (2, 0))
    (prompt,) = make_prompts(9, 0, 50)
    assert len(engine.call("run", [prompt], 5)["tokens"][0]) == 5


def test_gone_for_good_goes_on(daemon: package.Daemon, start_engines: Any) -> None:
    """A request that has its pages ends with its tokens."""
    alone, engine = start_engines({}, on(daemon, reconnect=0.05, on_loss="continue"))
    (prompt,) = make_prompts(30, 0, 20)
    expected = alone.call("run", [prompt], 11)
    engine.call("run", PROMPTS, 4)
    engine.send("run", [prompt], 11)
    package.wait_until(lambda: held(daemon) > (2, 0) or bool(engine.has_answer()))
    daemon.stop()
    assert engine.receive()["tokens"] == expected["tokens"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"batching": {"use_async_batching": True}}, "use_async_batching"),
        ({"batching": {"cpu_offload_space": 1}}, "offload"),
        ({"model": {"sliding_window": 64}}, "full attention"),
    ],
)
def test_refused(
    daemon: package.Daemon, start_engines: Any, settings: dict[str, Any], sentence: str
) -> None:
    (engine,) = start_engines(on(daemon) | settings)
    assert sentence in str(engine.call("run", PROMPTS[:1], 4))
