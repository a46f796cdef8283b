"""What happens around an engine: others take its memory, and processes are killed."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import kvlease_conftest as package
import pytest
from contract import full
from support import LIMIT, MEMORY, ctl, held, make_prompts, part_of

# Of 48 KiB, some 15 to 24 pages a prompt; a set of 6 MiB has 128.
PROMPTS = make_prompts(7, 160, *range(300, 300 + 8 * 40, 40))
# Of a model whose pages of 192 KiB fill a tenant with few tokens: 12 MiB have 64.
WIDE = {"head_dim": 128}


def test_more_requests_than_memory(
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any
) -> None:
    """Both engines want more than the tenant may have, which shrinks while they compute."""
    daemon = make_daemon(device=MEMORY, tenant="limit = 12MiB")
    alone, first, second = start_engines(settings(), settings(daemon), settings(daemon))
    other = make_prompts(8, 160, *range(300, 300 + 8 * 40, 40))
    expected = alone.call("run", PROMPTS, 24), alone.call("run", other, 24)
    first.send("run", PROMPTS, 24)
    second.send("run", other, 24)
    ctl(daemon, "tenants", "set", "a", "limit=6MiB")
    got = first.receive(), second.receive()
    assert first.call("stats")["waits"] + second.call("stats")["waits"] > 0
    # Both compute the same at the same time: one publishes, the other one's pages are its own.
    (prompt,) = make_prompts(9, 0, 1900)
    (same,) = alone.call("run", [prompt], 24)["tokens"]
    first.call("add", prompt, 24)
    second.call("add", prompt, 24)
    finished = []
    while len(finished) < 2:
        finished += first.call("steps", 1) + second.call("steps", 1)
    assert [result["tokens"] for result in finished] == [same, same]
    duplicates = [engine.call("stats")["duplicate_pages"] for engine in (first, second)]
    assert sum(duplicates) > 0
    assert [each["tokens"] for each in got] == [each["tokens"] for each in expected]
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")


def test_waits_for_what_others_hold(
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any, models: Any
) -> None:
    """Another client has leased all but what is left of the engine's set, where no prompt fits."""
    daemon = make_daemon(device=MEMORY, tenant="limit = 12MiB")
    wide = {"model": models(**WIDE)}
    alone, engine = start_engines(settings(**wide), settings(daemon, **wide))
    prompts = make_prompts(11, 0, 1075, 1100)
    expected = alone.call("run", prompts, 12)
    with full(daemon, 8):
        engine.send("run", prompts, 12)
        time.sleep(1)
        assert not engine.has_answer()
    assert engine.receive()["tokens"] == expected["tokens"]
    assert engine.call("stats")["waits"] > 0


def test_texts_beyond_the_limit_end_alone(
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any, models: Any
) -> None:
    """Also where the limit was lowered since the text began: requests behind it are answered."""
    daemon = make_daemon(device=MEMORY, tenant="limit = 12MiB")
    (engine,) = start_engines(settings(daemon, model=models(**WIDE)))

    def finish(n_requests: int) -> dict[str, str]:
        ended: dict[str, str] = {}
        while len(ended) < n_requests:
            ended |= {each["id"]: each["reason"] for each in engine.call("steps", 1)}
        return ended

    (beyond,), (fits,), short = (
        make_prompts(seed, 0, n) for seed, n in ((1, 2030), (2, 1050), (3, 40))
    )
    first, behind = engine.call("add", beyond, 6), engine.call("add", short[0], 4)
    assert finish(2) == {first: "error", behind: "length"}
    # So does one that asks for more tokens than there is room for, and says how many.
    first, behind = engine.call("add", short[0], 1970), engine.call("add", short[0], 4)
    assert finish(1) == {behind: "length"}
    engine.call("abort", first)
    ctl(daemon, "tenants", "set", "a", "limit=6MiB")
    first, behind = engine.call("add", short[0], 1000), engine.call("add", short[0], 4)
    assert finish(2) == {first: "error", behind: "length"}
    ctl(daemon, "tenants", "set", "a", "limit=12MiB")
    first = engine.call("add", fits, 500)
    engine.call("steps", 20)
    ctl(daemon, "tenants", "set", "a", "limit=6MiB")
    engine.call("preempt")
    behind = engine.call("add", short[0], 4)
    assert finish(2) == {first: "error", behind: "length"}
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_a_limit_below_one_page_is_refused(
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any
) -> None:
    daemon = make_daemon(device=MEMORY, tenant="limit = 2MiB")
    with pytest.raises(AssertionError, match=r"limit of 2 MiB of tenant a.* limit=6MiB"):
        start_engines(settings(daemon))


def test_aborted_requests_give_back(
    daemon: package.Daemon, start_engines: Any, settings: Any
) -> None:
    (engine,) = start_engines(settings(daemon))
    for n_steps in (1, 3, 20):
        requests = [engine.call("add", prompt, 1000) for prompt in PROMPTS]
        engine.call("steps", n_steps)
        assert held(daemon) > (0, 0)
        for request in requests:
            engine.call("abort", request)
        engine.call("steps", 1)
        package.wait_until(lambda: held(daemon) == (0, 0))
    (prompt,) = make_prompts(9, 0, 50)
    assert len(engine.call("run", [prompt], 5)["tokens"][0][0]) == 5


def test_killed_daemons_are_not_seen(
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any
) -> None:
    """SIGKILL of kvleased under --keep, in the middle of prefills and decodes."""
    daemon = make_daemon(keep=True, device=MEMORY, tenant=LIMIT)
    alone, engine = start_engines(settings(), settings(daemon))
    numbers = random.Random(3)
    for i in range(4):
        prompts = make_prompts(20 + i, 100, 200, 400, 600)
        expected = alone.call("run", prompts, 40)
        engine.send("run", prompts, 40)
        for _ in range(2):
            time.sleep(numbers.uniform(0, 0.3))
            daemon.kill()
        assert engine.receive()["tokens"] == expected["tokens"]
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")


def test_killed_engines_leave_nothing(
    daemon: package.Daemon, start_engines: Any, settings: Any
) -> None:
    """What a killed engine has published is there for the next one; what it held isn't lost."""
    alone, killed = start_engines(settings(), settings(daemon))
    expected = alone.call("run", PROMPTS, 8)
    for prompt in PROMPTS:
        killed.call("add", prompt, 1000)
    killed.call("steps", 20)
    assert held(daemon)[1] > 40
    killed.kill()
    package.wait_until(lambda: held(daemon) == (0, 0))
    (engine,) = start_engines(settings(daemon))
    got = engine.call("run", PROMPTS, 8)
    assert got["tokens"] == expected["tokens"]
    assert min(got["found"]) >= 160
    assert "consistent" in ctl(daemon, "check")


@pytest.mark.parametrize("victim", ["core", "worker"])
def test_a_killed_part_of_an_engine_leaves_nothing(
    daemon: package.Daemon, start_engines: Any, settings: Any, victim: str
) -> None:
    """What it held is given back. Whether the engine's other processes notice is vLLM's affair."""
    (engine,) = start_engines(
        settings(daemon, distributed_executor_backend="mp"),
        environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    )
    for prompt in PROMPTS:
        engine.call("add", prompt, 1000)
    package.wait_until(lambda: held(daemon)[1] > 40)
    core = part_of(engine.pid)
    os.kill({"core": core, "worker": part_of(core)}[victim], signal.SIGKILL)
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")


@pytest.mark.parametrize("on_loss", ["error", "continue"])
def test_gone_for_good(
    daemon: package.Daemon, start_engines: Any, settings: Any, on_loss: str
) -> None:
    """An error that says so; or a request that has its pages ends with its tokens."""
    alone, engine = start_engines(
        settings(), settings(daemon, kvlease={"reconnect": 0.05, "on_loss": on_loss})
    )
    (prompt,) = make_prompts(30, 0, 20)
    expected = alone.call("run", [prompt], 12)["tokens"][0]
    engine.call("add", prompt, 12)
    engine.call("steps", 4)
    daemon.stop()
    got = engine.call("steps", 10)
    if on_loss == "continue":
        assert [result["tokens"] for result in got] == [expected]
        got = engine.call("run", PROMPTS, 4)
    else:
        got = engine.call("run", PROMPTS, 4) if isinstance(got, list) else got
    assert "kvleased is gone" in got["error"]


@pytest.mark.parametrize(
    ("options", "kvlease_options", "sentence"),
    [
        ({"enable_prefix_caching": False}, {}, "prefix caching"),
        ({}, {"wieghts": "x"}, "wieghts"),
        ({}, {"host_codec": "int8"}, "host_codec: these settings need the mode"),
    ],
)
def test_refused(
    daemon: package.Daemon,
    start_engines: Any,
    settings: Any,
    options: dict[str, Any],
    kvlease_options: dict[str, Any],
    sentence: str,
) -> None:
    with pytest.raises(AssertionError, match=sentence):
        start_engines(settings(daemon, kvlease=kvlease_options, **options))
