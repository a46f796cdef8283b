"""Engines in processes of their own, beside a private daemon."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# Not tuned: long enough for a loaded machine that imports torch many times over.
SECONDS = 240
MEMORY = "memory = 256MiB\nextent = 2MiB"
LIMIT = "limit = 256MiB"
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


class Engine:
    """worker.py, started: call() waits for what a method returns, send() and receive() don't."""

    def __init__(
        self, worker: Path, settings: dict[str, Any], environment: dict[str, str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(worker), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | (environment or {}),
            start_new_session=True,
        )
        self._left = b""

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def send(self, *line: Any) -> None:
        """Calls a method, and doesn't wait."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        """What the oldest call that was sent has returned."""
        assert self._process.stdout
        end = time.monotonic() + SECONDS
        while b"\n" not in self._left:
            ready, _, _ = select.select([self._process.stdout], [], [], end - time.monotonic())
            assert ready, "the engine says nothing"
            got = os.read(self._process.stdout.fileno(), 65536)
            assert got, f"the engine ended with {self._process.wait()}"
            self._left += got
        line, _, self._left = self._left.partition(b"\n")
        return json.loads(line)

    def has_answer(self) -> bool:
        """Whether receive() would return at once."""
        assert self._process.stdout
        return b"\n" in self._left or bool(select.select([self._process.stdout], [], [], 0)[0])

    def call(self, *line: Any) -> Any:
        """A method's result."""
        self.send(*line)
        return self.receive()

    def kill(self) -> None:
        """SIGKILL of all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """The process is gone."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(SECONDS)
        finally:
            self._process.kill()
            self._process.stdout.close()


def on(daemon: Any, **options: Any) -> dict[str, Any]:
    """Settings of an engine that computes on a daemon's pages."""
    return {"kvlease": {"socket": str(daemon.socket), **options}}


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


def namespaces(daemon: Any) -> list[dict[str, Any]]:
    """All there are."""
    found: list[dict[str, Any]] = json.loads(ctl(daemon, "namespaces", "--json"))["namespaces"]
    return found


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


def findable(prompts: list[list[int]], page: int) -> list[int]:
    """Tokens that are found where all prompts were computed before: full pages, never all of it."""
    return [(len(prompt) - 1) // page * page for prompt in prompts]
