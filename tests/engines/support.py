"""Engines in processes of their own, beside a private daemon."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# Not tuned: long enough for a loaded machine that imports torch many times over.
SECONDS = 240
MEMORY = "memory = 256MiB\nextent = 2MiB"
LIMIT = "limit = 256MiB"
# Of hits none is computed anew, and pages that two engines have computed are compared.
COMPARED = 1e-12
# Of a Llama large enough that tokens depend on the whole prompt, and small enough for a CPU.
TINY_LLAMA = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 344,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,
}


# Engines are forked from a process that has imported what they need, which takes longer than most
# of the tests: a conftest.py says what (set_forkserver_preload).
forks = multiprocessing.get_context("forkserver")


def _work(
    worker: Path, settings: dict[str, Any], environment: dict[str, str], calls: Connection
) -> None:
    """An engine's process: makes the Engine of worker.py, says "ready", and then calls a method of
    it for each list of a name and arguments. It answers with what that returned or, instead, with
    what failed() of the Engine says; an Engine that can't be made is answered with an error."""
    os.setsid()
    # The collector passes over imported objects: they took it most of the start of an engine.
    gc.freeze()
    os.environ.update(environment)
    # What engines print goes where logs go.
    os.dup2(2, 1)
    spec = importlib.util.spec_from_file_location("worker", worker)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        engine = module.Engine(settings)
    except Exception as error:
        calls.send({"error": repr(error)})
        raise
    calls.send("ready")
    with contextlib.suppress(EOFError):
        while True:
            method, *arguments = calls.recv()
            try:
                answer = getattr(engine, method)(*arguments)
            except Exception as error:
                answer = engine.failed(error)
            calls.send(answer)


class Engine:
    """The Engine of a worker.py, in a process of its own: call() waits for what a method returns,
    send() and receive() don't."""

    def __init__(
        self, worker: Path, settings: dict[str, Any], environment: dict[str, str] | None = None
    ) -> None:
        self._calls, theirs = forks.Pipe()
        self._process = forks.Process(
            target=_work, args=(worker, settings, environment or {}, theirs)
        )
        self._process.start()
        theirs.close()
        self._is_plain = "vllm" in settings and not {"kvlease", "before"} & settings.keys()
        self._is_ready = False
        self._n_awaited = 1  # "ready"
        self._did: set[str] = set()

    def wait(self) -> None:
        """Until it is ready for calls."""
        if not self._is_ready:
            said = self.receive()
            assert said == "ready", said
            self._is_ready = True

    def can_be_kept(self) -> bool:
        """Whether another test may use it, as nothing but its cache has changed."""
        return (
            self._is_ready
            and self._is_plain
            and self._did <= {"run", "reset"}
            and not self._n_awaited
        )

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process.pid
        return self._process.pid

    def send(self, *call: Any) -> None:
        """Calls a method, and doesn't wait."""
        self._did.add(call[0])
        self._n_awaited += 1
        self._calls.send(call)

    def receive(self) -> Any:
        """What the oldest call that was sent has returned."""
        assert self._calls.poll(SECONDS), "the engine says nothing"
        try:
            answer = self._calls.recv()
            self._n_awaited -= 1
            return answer
        except (EOFError, ConnectionResetError):
            self._process.join(SECONDS)
            raise AssertionError(f"the engine ended with {self._process.exitcode}") from None

    def has_answer(self) -> bool:
        """Whether receive() would return at once."""
        return self._calls.poll(0)

    def call(self, *call: Any) -> Any:
        """A method's result."""
        self.send(*call)
        return self.receive()

    def kill(self) -> None:
        """SIGKILL of all its processes."""
        self._is_plain = False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        # It may not have a group of its own yet.
        self._process.kill()
        self._process.join()


def on(daemon: Any, **options: Any) -> dict[str, Any]:
    """Settings of an engine that computes on a daemon's pages."""
    return {"kvlease": {"socket": str(daemon.socket), "verify": COMPARED, **options}}


def make_prompts(seed: int, n_shared: int, *n_own: int) -> list[list[int]]:
    """Prompts of random tokens whose first n_shared are the same."""
    numbers = random.Random(seed)
    shared = [numbers.randrange(3, 500) for _ in range(n_shared)]
    return [shared + [numbers.randrange(3, 500) for _ in range(n)] for n in n_own]


def ctl(daemon: Any, *arguments: str) -> str:
    """What kvleasectl prints."""
    program = Path(os.environ["KVL_BUILD"]) / "client/ctl/kvleasectl"
    command = [program, "--socket", daemon.directory / "run/admin.sock", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def endings(daemon: Any, n: int) -> list[int]:
    """Of the n requests since `kvleasectl trace record on`, in the order in which they ended."""

    def recorded() -> int:
        found = re.search(r": (\d+) requests? ", ctl(daemon, "trace", "record", "status"))
        return int(found[1]) if found else 0

    def lines() -> list[str]:
        (file,) = (daemon.directory / "state/traces").glob("trace-*.jsonl")
        return file.read_text().splitlines()

    end = time.monotonic() + SECONDS
    while recorded() < n:
        assert time.monotonic() < end, "requests didn't end"
        time.sleep(0.01)
    ctl(daemon, "trace", "record", "off")
    while len(lines()) < n:
        assert time.monotonic() < end, "kvleased doesn't write what it recorded"
        time.sleep(0.01)
    return [json.loads(line)["ending"] for line in lines()]


def namespaces(daemon: Any) -> list[dict[str, Any]]:
    """All there are."""
    found: list[dict[str, Any]] = json.loads(ctl(daemon, "namespaces", "--json"))["namespaces"]
    return found


def client_names(daemon: Any) -> list[str]:
    """Of all that are connected."""
    return [each["name"] for each in json.loads(ctl(daemon, "clients", "--json"))["clients"]]


def held(daemon: Any) -> tuple[int, int]:
    """Pages that are leased and not published, and pages that are pinned, in all namespaces."""
    found = namespaces(daemon)
    return (
        sum(each["pages_granted"] for each in found),
        sum(each["pages_pinned"] for each in found),
    )


def part_of(pid: int) -> int:
    """The process that a process of an engine has started, beside such as multiprocessing needs,
    which have few descriptors."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [child for task in tasks for child in task.read_text().split()]
    return max(map(int, children), key=lambda child: len(os.listdir(f"/proc/{child}/fd")))


def published(daemon: Any) -> int:
    """Pages that are cached."""
    return sum(each["pages_sealed"] for each in namespaces(daemon))


def failures(daemon: Any) -> int:
    """Times that an engine found wrong numbers in a page."""
    tenants = json.loads(ctl(daemon, "tenants", "--json"))["tenants"]
    return sum(int(tenant["verify_failures"]) for tenant in tenants)


def assert_measures_prefill(daemon: Any, engine: Any) -> None:
    """An engine, whose namespace is the only one, tells how many tokens it computes in a second."""
    seconds = 0.0
    texts = [text for seed in range(4) for text in make_prompts(seed, 0, 1900)]
    for text in texts:
        seconds += engine.call("run", [text], 1)["seconds"]
    (namespace,) = namespaces(daemon)
    found = ctl(daemon, "explain", namespace["tenant"], namespace["name"], "0" * 64, "--json")
    told = re.search(r"\((\d+) a second, as engines measured\)", found)
    assert told, found
    # Steps are a part of runs, and not next to nothing of them; some steps count more than others.
    assert 1 / 4 < int(told[1]) / (1900 * len(texts) / seconds) < 100


def findable(prompts: list[list[int]], page: int) -> list[int]:
    """Tokens that are found where all prompts were computed before: full pages, never all of it."""
    return [(len(prompt) - 1) // page * page for prompt in prompts]
