#!/usr/bin/env python3
"""Replays a trace through a router before three hosts, once for each source of its knowledge.

    python tests/bench/routing.py [TRACE] [--routers 2] [--kill] [--placements sent,query]

Each host is a private kvleased with kvlease-events and an engine without a model, as root in a
network namespace of its own. Requests take no time: the time to the first token is computed from
the trace's times and RATE. TRACE: docs/measure/TRACES.md; without it conversations are made. Needs
the Python package, as tests/run.sh --part python installs it."""

from __future__ import annotations

import argparse
import array
import contextlib
import ctypes
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import kvlease
from kvlease import FollowKind

BUILD = Path(os.environ.get("KVL_BUILD", Path(__file__).resolve().parents[2] / "build"))
N_HOSTS = 3
BLOCK = 512  # tokens of a block of the trace, and of a page
HOST_PAGES = 5120  # 320 GiB of a model with 128 KiB a token
RATE = 15_000  # tokens that a host computes in a second; not measured
TOKEN = "a-token-of-the-benchmark"
SECONDS = 30  # for processes to start
NOTICE_SECONDS = 3
CLONE_NEWNET = 0x40000000
LAYOUT = kvlease.Layout(
    model="tiny",
    dtype=kvlease.DType.F16,
    n_layers=1,
    n_kv_heads=1,
    head_size=2,
    page_tokens=BLOCK,
    plane_page_bytes=4096,
)


class Text(NamedTuple):
    """A request of the trace."""

    seconds: float
    n_tokens: int
    blocks: list[int]  # full ones; an id names the text up to the block's end
    keys: bytes

    @staticmethod
    def of(seconds: float, n_tokens: int, ids: list[int]) -> Text:
        """A block's tokens are its id, as it is unique."""
        blocks = ids[: n_tokens // BLOCK]
        tokens = array.array("I", [i for i in blocks for _ in range(BLOCK)])
        return Text(seconds, n_tokens, blocks, LAYOUT.keys(tokens))


def read_trace(path: str, n: int) -> Iterator[Text]:
    """The first n requests with a block."""
    with open(path) as file:
        for _, line in zip(range(n), file, strict=False):
            one = json.loads(line)
            yield Text.of(one["timestamp"] / 1000, one["input_length"], one["hash_ids"])


def make_trace(n: int) -> Iterator[Text]:
    """Conversations that begin alike. Most of those that go on are recent ones."""
    source = random.Random(1)
    talks: list[list[int]] = []
    for i in range(n):
        ids = [0]
        if talks and source.random() < 0.6:
            ids = talks.pop(int(len(talks) * source.random() ** 0.5))
        ids = [*ids, *range(1 + i * 100, 1 + i * 100 + source.randint(1, 24))]
        talks.append(ids)
        yield Text.of(i * 0.3, len(ids) * BLOCK, ids)


# ---- hosts ---------------------------------------------------------------------------------------


def wait_until(is_so: Callable[[], bool]) -> None:
    """Or fails."""
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end, "a process doesn't start"
        time.sleep(0.02)


class Connection(http.client.HTTPConnection):
    """HTTP at the path of a Unix socket, or at an address."""

    def connect(self) -> None:
        """Called by the base class."""
        if self.host.startswith("/"):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(self.host)
        else:
            super().connect()


class Host:
    """A daemon, kvlease-events, and an engine that computes the pages it doesn't find."""

    def __init__(
        self, number: int, directory: Path, has_network: bool, stack: contextlib.ExitStack
    ) -> None:
        self._stack = stack  # ends the processes
        self._directory = directory / str(number)
        self._directory.mkdir()
        self._token = self._directory / "token"
        self._token.write_text(TOKEN)
        self._token.chmod(0o600)
        self.socket = self._directory / "run/t/a/sock"
        self._clock = self._directory / "clock"
        self.set_clock(0)
        self._enter: list[str] = []
        address, port = f"{self._directory}/query", 5559
        if has_network:
            address = f"10.77.{number}.2"
            self._make_network(number, address)
        self._query = f"{address}:{port}" if has_network else address
        self._http = Connection(address, port)
        stack.callback(self._http.close)
        self._daemon = self._start_daemon()
        self._ns = self._start_engine()
        self._start_events()

    def _make_network(self, number: int, address: str) -> None:
        """A network namespace with a link to the router's."""
        holder = self._run(["unshare", "--net", "sleep", "infinity"])
        there = f"/proc/{holder.pid}/ns/net"
        wait_until(lambda: os.readlink(there) != os.readlink("/proc/self/ns/net"))
        self._enter = ["nsenter", f"--net={there}"]
        link = f"host{number}"
        subprocess.run(
            f"ip link add {link} type veth peer name eth0 netns {holder.pid}"
            f" && ip link set {link} up && ip addr add 10.77.{number}.1/30 dev {link}"
            f" && {' '.join(self._enter)} ip addr add {address}/30 dev eth0"
            f" && {' '.join(self._enter)} ip link set eth0 up",
            shell=True,
            check=True,
        )

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        clock = {"KVLEASE_TEST_CLOCK": str(self._clock)}
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | clock)
        self._stack.callback(started.wait)
        self._stack.callback(started.kill)
        return started

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        return self._run([*self._enter, str(BUILD / program), *arguments])

    def _start_daemon(self) -> subprocess.Popen[bytes]:
        config = self._directory / "conf"
        config.write_text(
            f"[daemon]\ndevices = host\nlog_level = error\nruntime_dir = {self._directory}/run\n"
            f"state_dir = {self._directory}/state\n[device host]\nextent = 2MiB\n"
            f"memory = {HOST_PAGES * LAYOUT.plane_page_bytes}\n[tenant a]\nevents = 64MiB\n"
        )
        self.socket.unlink(missing_ok=True)
        started = self._start("daemon/server/kvleased", "--config", str(config))
        wait_until(self.socket.exists)
        return started

    def _start_engine(self) -> kvlease.Namespace:
        connection = kvlease.connect(self.socket, shm=False, metadata_only=True, timeout=SECONDS)
        connection.set_event_handler(lambda _: None)
        self._stack.callback(connection.close)
        return connection.namespace(layout=LAYOUT)

    def _start_events(self) -> None:
        self._start(
            "client/events/kvlease-events",
            f"--socket={self._directory}/run/monitor.sock",
            f"--block-size={BLOCK}",
            f"--endpoint=ipc://{self._directory}/live",
            f"--replay=ipc://{self._directory}/replay",
            f"--query={self._query}",
            f"--query-token-file={self._token}",
        )
        wait_until(lambda: self.ask([0]) >= 0)

    def set_clock(self, seconds: float) -> None:
        """Of the trace: the eviction policy's."""
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:
            file.write(int((1000 + seconds) * 1e9).to_bytes(8, "little"))

    def serve(self, text: Text) -> int:
        """Finds and publishes the pages of a text. Returns how many it found."""
        self.set_clock(text.seconds)
        with self._ns.find(text.keys) as found:
            n, wanted = len(found), len(text.blocks)
            if n < wanted:
                tokens = array.array("I", [i for i in text.blocks[n:] for _ in range(BLOCK)])
                before = text.keys[(n - 1) * 32 : n * 32] if n else None
                with self._ns.lease(wanted - n) as pages:
                    keys = text.keys[n * 32 :]
                    self._ns.publish(pages, keys, parent=before, token_ids=tokens).close()
        return n

    def ask(self, blocks: list[int]) -> int:
        """Cached blocks of a text, as kvlease-events says; -1: it can't say."""
        ids = ",".join(",".join([str(i)] * BLOCK) for i in blocks)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        try:
            self._http.request("POST", "/v1/prefix", f'{{"token_ids": [{ids}]}}', headers)
            answer = self._http.getresponse()
            said = json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            self._http.close()
            return -1
        if answer.status != 200:
            self._http.close()
        return int(said["blocks"]) if answer.status == 200 else -1

    def kill_daemon(self) -> None:
        """Its pages are lost. The engine connects to the next one."""
        self._daemon.kill()
        self._daemon.wait()
        self._ns.connection.close()
        self._daemon = self._start_daemon()
        self._ns = self._start_engine()


# ---- what a router knows -------------------------------------------------------------------------


class Nothing:
    """A router that knows no caches."""

    hears_all = True  # told() is also of texts that other routers have sent

    def __init__(self, hosts: list[Host]) -> None:
        self.hosts = hosts

    def found(self, host: int, text: Text) -> int:
        """Blocks of a text that the host has, as far as it knows."""
        return 0

    def told(self, host: int, text: Text) -> None:
        """The host has served a text."""


class Keys(Nothing):
    """A router with the keys of pages of each host."""

    def __init__(self, hosts: list[Host]) -> None:
        super().__init__(hosts)
        self.keys: list[OrderedDict[bytes, None]] = [OrderedDict() for _ in hosts]

    def found(self, host: int, text: Text) -> int:
        """See above."""
        for i in range(len(text.blocks)):
            if text.keys[i * 32 : i * 32 + 32] not in self.keys[host]:
                return i
        return len(text.blocks)


class Told(Keys):
    """Engines tell of pages that they found and published, and of no evicted or lost page."""

    def told(self, host: int, text: Text) -> None:
        """See above."""
        for i in range(0, len(text.keys), 32):
            self.keys[host][text.keys[i : i + 32]] = None


class Sent(Told):
    """The router guesses: a host has what this router has sent it last, as much as fits."""

    hears_all = False

    def told(self, host: int, text: Text) -> None:
        """The deepest pages are the first to go."""
        for i in reversed(range(0, len(text.keys), 32)):
            self.keys[host].pop(text.keys[i : i + 32], None)
            self.keys[host][text.keys[i : i + 32]] = None
        while len(self.keys[host]) > HOST_PAGES:
            self.keys[host].popitem(last=False)


class Events(Keys):
    """kvleased's events, by kvlease.Follower."""

    def __init__(self, hosts: list[Host]) -> None:
        super().__init__(hosts)
        self._followers = [kvlease.Follower(host.socket) for host in hosts]

    def found(self, host: int, text: Text) -> int:
        """Takes what has happened since."""
        keys = self.keys[host]
        while event := self._followers[host].next():
            if event.kind == FollowKind.STORED and event.key:
                keys[event.key] = None
            elif event.kind == FollowKind.REMOVED and event.key:
                keys.pop(event.key, None)
            elif event.kind in (FollowKind.RESET, FollowKind.CLEARED, FollowKind.GONE):
                keys.clear()
        return super().found(host, text)


class Query(Nothing):
    """Asks each host for each prompt: POST /v1/prefix."""

    def found(self, host: int, text: Text) -> int:
        """A host that can't say has nothing."""
        return max(self.hosts[host].ask(text.blocks), 0)


PLACEMENTS: dict[str, type[Nothing]] = {
    "round-robin": Nothing,
    "least-loaded": Nothing,
    "sent": Sent,
    "told": Told,
    "events": Events,
    "query": Query,
}

# ---- the router ----------------------------------------------------------------------------------


class Routers:
    """Send each text to the host that has its first token soonest. All know the hosts' load, but
    each has its own picture of their caches. They take turns."""

    def __init__(self, placement: str, hosts: list[Host], n_routers: int) -> None:
        self._turns = placement == "round-robin"
        self._pictures = [PLACEMENTS[placement](hosts) for _ in range(n_routers)]
        self._hosts = hosts
        self._free_at = [0.0] * len(hosts)
        self._n = 0
        self.n_tokens = self.n_found = self.n_wrong = 0
        self.n_computed = [0] * len(hosts)
        self.seconds: list[float] = []  # to the first token

    def notice(self, text: Text) -> None:
        """They have the time to, which real ones have between two requests."""
        end = time.monotonic() + NOTICE_SECONDS
        while time.monotonic() < end:
            for picture in self._pictures:
                picture.found(0, text)
            time.sleep(0.1)

    def _choose(self, text: Text, picture: Nothing) -> tuple[int, int]:
        """Returns the host, and the blocks that it is thought to have."""
        if self._turns:
            return self._n % len(self._hosts), 0
        found = [picture.found(i, text) for i in range(len(self._hosts))]

        def cost(i: int) -> tuple[float, int]:
            waits = max(self._free_at[i] - text.seconds, 0)
            return waits + (text.n_tokens - found[i] * BLOCK) / RATE, (i + self._n) % len(found)

        chosen = min(range(len(found)), key=cost)
        return chosen, found[chosen]

    def place(self, text: Text) -> None:
        """Sends a text to a host."""
        asked = self._pictures[self._n % len(self._pictures)]
        chosen, thought = self._choose(text, asked)
        found = self._hosts[chosen].serve(text)
        computed = text.n_tokens - found * BLOCK
        begins = max(self._free_at[chosen], text.seconds)
        self._free_at[chosen] = begins + computed / RATE
        self.seconds.append(self._free_at[chosen] - text.seconds)
        for picture in self._pictures:
            if picture is asked or picture.hears_all:
                picture.told(chosen, text)
        self._n += 1
        self.n_tokens += text.n_tokens
        self.n_found += found * BLOCK
        self.n_wrong += abs(thought - found) * BLOCK
        self.n_computed[chosen] += computed

    def row(self) -> str:
        """Found tokens, the busiest host's part of the computed ones, times, and tokens of which
        the picture was wrong."""
        times = sorted(self.seconds)
        busiest = max(self.n_computed) / sum(self.n_computed)
        return (
            f"{self.n_found / self.n_tokens:7.1%}  {busiest:7.1%}  {times[len(times) // 2]:9.2f} s"
            f"  {times[len(times) * 99 // 100]:7.2f} s  {self.n_wrong / self.n_tokens:7.1%}"
        )


def run(placement: str, trace: list[Text], words: argparse.Namespace, has_network: bool) -> None:
    """Prints a row."""
    with tempfile.TemporaryDirectory(prefix="kvl-") as directory, contextlib.ExitStack() as stack:
        hosts = [Host(i, Path(directory), has_network, stack) for i in range(N_HOSTS)]
        routers = Routers(placement, hosts, words.routers)
        begun = time.monotonic()
        for i, text in enumerate(trace):
            if i == len(trace) // 2 and words.kill:
                hosts[0].kill_daemon()
                routers.notice(text)
            routers.place(text)
        print(f"{placement:12}  {routers.row()}  {time.monotonic() - begun:5.0f} s", flush=True)


def enter_network() -> bool:
    """Leaves the host's network. Returns whether that may be."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) < 0:
        print("without network namespaces: hosts are asked by Unix sockets", file=sys.stderr)
        return False
    return True


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", nargs="?")
    parser.add_argument("--requests", type=int, default=12_031)
    parser.add_argument("--routers", type=int, default=1)
    parser.add_argument("--kill", action="store_true", help="a kvleased, in the middle")
    parser.add_argument("--placements", default=",".join(PLACEMENTS))
    words = parser.parse_args()
    trace = list(
        read_trace(words.trace, words.requests) if words.trace else make_trace(words.requests)
    )
    has_network = enter_network()
    print("placement       found  busiest    median s    99 % s    wrong   took")
    for placement in words.placements.split(","):
        run(placement, trace, words, has_network)


if __name__ == "__main__":
    main()
