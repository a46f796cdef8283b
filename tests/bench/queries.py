#!/usr/bin/env python3
"""Times of queries to kvlease-events, by a connection that stays, of prompts that are cached whole,
and the processor's time that a query takes of kvlease-events and of kvleased.

Starts a private kvleased. Needs the Python package, as tests/run.sh --part python installs it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import kvlease

BUILD = Path(os.environ.get("KVL_BUILD", Path(__file__).resolve().parents[2] / "build"))
SIZES = {1024: 2000, 8192: 2000, 131072: 200}  # tokens of a prompt: queries
PAGE_TOKENS = 64
LAYOUT = kvlease.Layout(
    model="tiny",
    dtype=kvlease.DType.F16,
    n_layers=1,
    n_kv_heads=1,
    head_size=16,
    page_tokens=PAGE_TOKENS,
    plane_page_bytes=4096,
)


class Connection(http.client.HTTPConnection):
    """HTTP at the path of a Unix socket."""

    def connect(self) -> None:
        """Called by the base class."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


def publish(path: Path, text: list[int]) -> kvlease.Namespace:
    """Caches a text."""
    ns = kvlease.connect(path, timeout=60).namespace(layout=LAYOUT)
    with ns.lease(len(text) // PAGE_TOKENS) as pages:
        ns.publish(pages, LAYOUT.keys(text), token_ids=text).close()
    return ns


def ask(connection: Connection, body: str) -> int:
    """Returns the tokens found; -1: not yet."""
    connection.request("POST", "/v1/prefix", body)
    answer = connection.getresponse()
    said = json.loads(answer.read()) if answer.status == 200 else {"tokens": -1}
    if answer.status != 200:
        connection.close()
    return int(said["tokens"])


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """Of all its threads (clock_getcpuclockid(3))."""
    return time.clock_gettime(~process.pid << 3 | 2)


def measure(connection: Connection, text: list[int], n: int) -> list[float]:
    """Milliseconds of each query, sorted."""
    body = json.dumps({"token_ids": text})
    times = []
    for _ in range(n):
        begun = time.perf_counter()
        found = ask(connection, body)
        times.append((time.perf_counter() - begun) * 1000)
        assert found == len(text), found
    return sorted(times)


def run(directory: Path, started: list[subprocess.Popen[bytes]]) -> None:
    """Prints a table."""
    (directory / "conf").write_text(
        f"[daemon]\ndevices = host\nruntime_dir = {directory}/run\nstate_dir = {directory}/state\n"
        "[device host]\nmemory = 64MiB\n[tenant a]\nlimit = 64MiB\nevents = 64MiB\n"
    )
    with (directory / "log").open("wb") as log:
        for command in (
            ["daemon/server/kvleased", "--config", f"{directory}/conf"],
            [
                "client/events/kvlease-events",
                f"--socket={directory}/run/monitor.sock",
                f"--endpoint=ipc://{directory}/live",
                f"--replay=ipc://{directory}/replay",
                f"--query={directory}/query",
            ],
        ):
            command[0] = str(BUILD / command[0])
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
    socket_path = directory / "run/t/a/sock"
    while not (socket_path.exists() and (directory / "query").exists()):
        time.sleep(0.05)
    text = list(range(100_000, 100_000 + max(SIZES)))
    ns = publish(socket_path, text)
    connection = Connection(str(directory / "query"))
    while ask(connection, json.dumps({"token_ids": text})) < len(text):
        time.sleep(0.05)
    print("tokens  queries  median ms  p99 ms  kvlease-events ms  kvleased ms  load")
    for size, n in SIZES.items():
        before = [cpu_seconds(process) for process in started]
        times = measure(connection, text[:size], n)
        daemon, events = (
            (cpu_seconds(process) - was) * 1000 / n
            for process, was in zip(started, before, strict=True)
        )
        print(
            f"{size:6}  {n:7}  {times[n // 2]:9.2f}  {times[n * 99 // 100]:6.2f}  {events:17.3f}"
            f"  {daemon:11.3f}  {os.getloadavg()[0]:4.1f}",
            flush=True,
        )
    ns.connection.close()


def main() -> None:
    """Measures, and ends the processes that were started."""
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="kvl-") as directory:
        try:
            run(Path(directory), started)
        finally:
            for process in started:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
