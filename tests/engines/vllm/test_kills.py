"""SIGKILLs at random moments. KVL_SEED=N repeats a run's choices, KVL_FULL=1 has more rounds."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import kvlease_conftest as package
from support import LIMIT, MEMORY, Engine, ctl, held, make_prompts, part_of

N_ROUNDS = 20 if os.environ.get("KVL_FULL") else 2
VICTIMS = ["kvleased", "worker", "core", "api"]
# Of some seconds that a round takes.
MOST_REMAINING_SECONDS = 2.0


def strike(victim: str, daemon: package.Daemon, engine: Engine, left_for: float) -> None:
    """Kills it; of an engine first one process, and so much later the others."""
    if victim == "kvleased":
        daemon.kill()
        return
    pid = engine.pid
    if victim != "api":
        pid = part_of(pid)
    if victim == "worker":
        pid = part_of(pid)
    os.kill(pid, signal.SIGKILL)
    time.sleep(left_for)
    engine.kill()


def finished(engine: Engine, n_requests: int) -> Iterator[dict[str, Any]]:
    """What requests return that are over before the engine is."""
    while n_requests:
        try:
            results = engine.call("results")
        except (AssertionError, BrokenPipeError):
            return
        if isinstance(results, dict):
            return
        n_requests -= len(results)
        yield from results


def test_random_kills(make_daemon: package.MakeDaemon, start_engines: Any, settings: Any) -> None:
    """Whatever is killed, of an engine or kvleased itself: who computes beside it has the right
    tokens, also from the pages that it left, and so has each request that was over before; nothing
    stays held."""
    seed = int(os.environ.get("KVL_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"KVL_SEED={seed}")
    numbers = random.Random(seed)
    daemon = make_daemon(keep=True, device=MEMORY, tenant=LIMIT)
    alone, beside = start_engines(settings(), settings(daemon))
    processes = settings(daemon, distributed_executor_backend="mp")
    victims: list[str] = []
    engine = None
    for _ in range(N_ROUNDS):
        if engine is None:
            (engine,) = start_engines(
                processes, environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
            )
        victims = victims or numbers.sample(VICTIMS, len(VICTIMS))
        victim = victims.pop()
        lengths = [numbers.randrange(1, 600) for _ in range(4)]
        prompts = make_prompts(numbers.randrange(1 << 32), 100, *lengths)
        n_tokens = numbers.randrange(10, 60)
        expected = alone.call("run", prompts, n_tokens)
        moment = numbers.uniform(0, expected["seconds"])
        left_for = numbers.uniform(0, MOST_REMAINING_SECONDS)
        print(f"{victim} after {moment:.2f} s, lengths {lengths}, {n_tokens} tokens each")
        requests = [engine.call("add", prompt, n_tokens) for prompt in prompts]
        beside.send("run", prompts[:1], n_tokens)
        killer = threading.Timer(moment, strike, [victim, daemon, engine, left_for])
        killer.start()
        tokens = dict(zip(requests, expected["tokens"], strict=True))
        n_finished = 0
        for result in finished(engine, len(requests)):
            assert result["tokens"] == tokens[result["id"]]
            n_finished += 1
        killer.join()
        assert beside.receive()["tokens"] == expected["tokens"][:1]
        if victim == "kvleased":
            assert n_finished == len(requests)
        else:
            engine = None
        package.wait_until(lambda: held(daemon) == (0, 0))
        # From what the engine had published.
        assert beside.call("run", prompts, n_tokens)["tokens"] == expected["tokens"]
        package.wait_until(lambda: held(daemon) == (0, 0))
        assert "consistent" in ctl(daemon, "check")
