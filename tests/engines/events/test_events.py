"""After whatever happens to engine, daemon, kvlease-events and router, the router's answers are
those of kvl_probe(), once nothing changes."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kvlease_conftest as package
import pytest
from routers import BLOCK, LIVE, LLM_D, MODEL, REPLAY, Answer, Indexer, LlmD, Queries
from support import Engine
from worker import LAYOUT, PAGE_TOKENS, open_namespace

import kvlease

FULL = "KVL_FULL" in os.environ
ROUNDS = 200 if FULL else 20
N_TEXTS = 1000 if FULL else 200
PAGES_MAX = 12
# Not tuned: a router asks within a heartbeat, and connects again within seconds.
QUIET_SECONDS = 60


class Events:
    """kvlease-events for a profile."""

    def __init__(self, daemon: package.Daemon, *arguments: str) -> None:
        self._log = daemon.directory / f"events-{arguments[1]}.log"
        socket = str(daemon.directory / "run/monitor.sock")
        self._command = [str(package.BUILD / "client/events/kvlease-events"), "--socket", socket]
        self._command += ["--heartbeat", "100ms", *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Doesn't wait."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def tell(self, number: signal.Signals) -> None:
        """To the process."""
        assert self._process
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Returns the exit status."""
        self.tell(number)
        assert self._process
        return self._process.wait(30)

    def log(self) -> str:
        """All that it has said."""
        return self._log.read_text()


class Host:
    """A daemon with three tiers, an engine, kvlease-events for both profiles, both routers."""

    def __init__(
        self,
        make_daemon: package.MakeDaemon,
        start_engines: Callable[..., list[Engine]],
        path: Path,
    ) -> None:
        self.random = random.Random(int(os.environ.get("KVL_SEED", "1")))
        self.texts = self._make_texts()
        self.daemon = make_daemon(
            keep=True,
            device=f"memory = 4MiB\nextent = 2MiB\nhost_memory = 4MiB\n"
            f"disk = {path}/pages\ndisk_size = 64MiB",
            tenant="limit = 4MiB\nevents = 64MiB",
        )
        self._start_engines = start_engines
        self.engine = self._start_engine()
        dynamo = ["--profile", "dynamo", "--endpoint", LIVE, "--replay", REPLAY]
        dynamo += ["--query", str(path / "query.sock")]
        llm_d = ["--profile", "llm-d", "--endpoint", LLM_D, "--model", MODEL, "--pod", "pod-1"]
        self.events = [Events(self.daemon, *dynamo), Events(self.daemon, *llm_d)]
        for events in self.events:
            events.start()
        self.indexer = Indexer(path / "indexer.log")
        self.indexer.start()
        self.llm_d = LlmD()
        self.queries = Queries(path / "query.sock")
        self._ns = open_namespace(self.daemon.socket)

    def begin_again(self) -> None:
        """With a new daemon, which has nothing."""
        self._ns.connection.close()
        self._ns = open_namespace(self.daemon.socket)
        self.engine = self._start_engine()

    def _make_texts(self) -> list[list[int]]:
        """Texts of 1 to PAGES_MAX pages that begin alike, and differ from within a page on."""
        texts: list[list[int]] = []
        for _ in range(N_TEXTS):
            before: list[int] = []
            if texts and self.random.random() < 0.8:
                other = self.random.choice(texts)
                before = other[: self.random.randrange(0, len(other), BLOCK // 2)]
            if before and self.random.random() < 0.5:  # the same tokens with other names
                before[0] = before[0] // 4 * 4 + self.random.randrange(4)
            n = self.random.randint(1, PAGES_MAX) * PAGE_TOKENS
            texts.append((before + [self.random.randrange(200_000) for _ in range(n)])[:n])
        return texts

    def _start_engine(self) -> Engine:
        return self._start_engines({"socket": str(self.daemon.socket)})[0]

    def close(self) -> None:
        """Ends what the fixtures don't."""
        self._ns.connection.close()
        self.indexer.kill()
        self.llm_d.close()
        for events in self.events:
            events.end()

    def serve(self, n: int) -> None:
        """Texts, some of which are asked often."""
        texts = [self.texts[int(N_TEXTS * self.random.random() ** 2)] for _ in range(n)]
        said = self.engine.call("run", texts)
        assert isinstance(said, int), said

    def wanted(self, text: list[int]) -> Answer:
        """What the daemon has of a text."""
        found = [0, 0, 0]
        slowest = 0
        for tier in self._ns.probe(LAYOUT.keys(text)):
            slowest = max(slowest, tier)
            for i in range(slowest, 3):
                found[i] += PAGE_TOKENS
        return found[0], found[1], found[2]

    def differences(self) -> list[Any]:
        """Texts of which a router says something else than the daemon. A router also finds the
        first blocks of a page if it has another page that begins alike. Keys name whole pages."""
        routers = (
            ("dynamo", self.indexer.ask, PAGE_TOKENS),
            ("llm-d", self.llm_d.ask, PAGE_TOKENS),
            ("token ids", self.queries.ask, PAGE_TOKENS),
            ("keys", lambda text: self.queries.ask_keys(LAYOUT.keys(text)), 1),
        )
        return [
            (name, i, wanted, found)
            for i, text in enumerate(self.texts)
            for name, ask, more in routers
            for wanted, found in [(self.wanted(text), ask(text))]
            if any(not 0 <= f - w < more for w, f in zip(wanted, found, strict=True))
        ]

    def check(self, what: str) -> None:
        """The routers are right, once nothing changes."""
        end = time.monotonic() + QUIET_SECONDS
        while different := self.differences():
            assert time.monotonic() < end, (what, len(different), different[:4])
            time.sleep(0.1)

    # What may happen.

    def invalidate(self) -> None:
        """Some text from some page on."""
        text = self.random.choice(self.texts)
        said = self.engine.call("invalidate", text, self.random.randrange(len(text) // PAGE_TOKENS))
        assert isinstance(said, int), said

    def invalidate_all(self) -> None:
        """The whole namespace."""
        self._ns.invalidate()

    def kill_daemon(self) -> None:
        """SIGKILL of kvleased, which goes on."""
        self.daemon.kill()

    def restart_daemon(self) -> None:
        """In order."""
        pid = self.daemon.server_pid()
        assert self.daemon.ctl("restart").wait(60) == 0
        package.wait_until(lambda: self.daemon.server_pid() != pid)

    def kill_engine(self) -> None:
        """SIGKILL of the engine while it works."""
        self.engine.send("run", self.texts)
        time.sleep(self.random.random() / 20)
        self.engine.kill()
        self.engine = self._start_engine()

    def kill_events(self) -> None:
        """SIGKILL of kvlease-events, which misses some."""
        for events in self.events:
            events.end()
        self.serve(20)
        for events in self.events:
            events.start()

    def stop_events(self) -> None:
        """It falls behind."""
        for events in self.events:
            events.tell(signal.SIGSTOP)
        for _ in range(self.random.choice([1, 20])):
            self.serve(50)
        for events in self.events:
            events.tell(signal.SIGCONT)

    def end_events(self) -> None:
        """In order: the routers know nothing until it is back."""
        for events in self.events:
            assert events.end(signal.SIGTERM) == 0
        package.wait_until(lambda: not any(any(self.indexer.ask(text)) for text in self.texts[:20]))
        for events in self.events:
            events.start()

    def kill_routers(self) -> None:
        """They have forgotten all."""
        self.indexer.kill()
        self.llm_d.forget()
        self.serve(20)
        self.indexer.start()


@pytest.fixture
def host(
    make_daemon: package.MakeDaemon, start_engines: Callable[..., list[Engine]], tmp_path: Path
) -> Iterator[Host]:
    """Everything, and its end."""
    made = Host(make_daemon, start_engines, tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_routers_are_right(host: Host) -> None:
    """Also after each part was killed, in any order."""
    happens: list[Callable[[], None]] = [
        host.invalidate,
        host.invalidate,
        host.invalidate_all,
        host.kill_daemon,
        host.restart_daemon,
        host.kill_engine,
        host.kill_events,
        host.stop_events,
        host.end_events,
        host.kill_routers,
    ]
    tiers = [0, 0, 0]
    host.check("at first")
    for i in range(ROUNDS):
        # Each once, then by chance.
        what = happens[i] if i < len(happens) else host.random.choice(happens)
        host.serve(40)
        what()
        host.serve(10)
        host.check(f"round {i}: {what.__name__}")
        for text in host.texts:
            device, memory, disk = host.wanted(text)
            tiers[0] += device
            tiers[1] += memory - device
            tiers[2] += disk - memory
    # Else it has shown nothing.
    assert all(tiers), tiers
    assert host.llm_d.topics == {f"kv@pod-1@{MODEL}"}


def test_newest_namespace(host: Host) -> None:
    """An upgraded engine opens another namespace, whose pages are published instead."""
    host.serve(20)
    host.check("the first namespace")
    layout = dataclasses.replace(LAYOUT, dtype=kvlease.DType.BF16)
    text = list(range(2 * PAGE_TOKENS))
    with kvlease.connect(host.daemon.socket) as connection:
        newer = connection.namespace(layout=layout)
        with newer.lease(2) as pages:
            newer.publish(pages, layout.keys(text), token_ids=text).close()
        found = (len(text),) * 3
        for router in (host.indexer, host.llm_d):
            package.wait_until(lambda router=router: router.ask(text) == found)
            assert not any(any(router.ask(other)) for other in host.texts)
    host.serve(20)  # the older namespace isn't published any more
    assert not any(any(host.indexer.ask(other)) for other in host.texts)


def test_daemon_ends(host: Host) -> None:
    """Routers know nothing once the daemon was away for too long, and all of the next one."""
    host.serve(20)
    host.check("before")
    host.daemon.stop()
    package.wait_until(lambda: not any(any(host.indexer.ask(text)) for text in host.texts))
    package.wait_until(lambda: not any(any(host.llm_d.ask(text)) for text in host.texts))
    host.engine.kill()
    host.daemon.start()
    host.begin_again()
    host.serve(20)
    host.check("the next daemon")


def test_wrong_block_size(make_daemon: package.MakeDaemon) -> None:
    """A block that doesn't divide the page is refused with a sentence."""
    daemon = make_daemon(tenant="limit = 4MiB\nevents = 64MiB")
    events = Events(daemon, "--profile", "dynamo", "--block-size", "24")
    events.start()
    with kvlease.connect(daemon.socket) as connection:
        connection.namespace(layout=LAYOUT)
        package.wait_until(lambda: "--block-size 24 doesn't divide" in events.log())
    assert events.end(signal.SIGTERM) == 0


def test_pages_without_ids(make_daemon: package.MakeDaemon) -> None:
    """An engine that gives no token ids is named, once."""
    daemon = make_daemon(tenant="limit = 4MiB\nevents = 64MiB")
    events = Events(daemon, "--profile", "dynamo")
    events.start()
    keys = LAYOUT.keys(range(2 * PAGE_TOKENS))
    with kvlease.connect(daemon.socket) as connection:
        namespace = connection.namespace(layout=LAYOUT)
        with namespace.lease(2) as pages:
            namespace.publish(pages, keys).close()
        package.wait_until(lambda: "pages without token ids from their engine" in events.log())
    assert events.end(signal.SIGTERM) == 0
    assert events.log().count("without token ids") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--block-sise", "4"], 2, "there is no option --block-sise: did you mean --block-size?"),
        (["--tenant"], 2, "--tenant: needs a value"),
        (["--pod", "a"], 2, "--pod: it is for --profile llm-d"),
        (["--refresh", "5s"], 2, "--refresh: it is for --profile llm-d"),
        (["--endpoint", "here"], 1, "can't open here: Invalid argument; name another endpoint by "),
    ],
)
def test_refused(arguments: list[str], code: int, sentence: str) -> None:
    """The sentence names the option, and the remedy."""
    program = package.BUILD / "client/events/kvlease-events"
    result = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    assert result.returncode == code
    assert result.stderr.startswith("kvlease-events: " + sentence)


def test_decoded_by_vllm(host: Host) -> None:
    """Batches are those of vLLM's own classes, with their fields."""
    events = pytest.importorskip("vllm.distributed.kv_events")
    msgspec = pytest.importorskip("msgspec")
    host.serve(100)
    host.invalidate()
    host.check("before decoding")
    decode = msgspec.msgpack.Decoder(type=events.KVEventBatch).decode
    kinds, loras, salts = set(), set(), set()
    for payload in host.llm_d.payloads:
        batch = decode(payload)
        assert abs(batch.ts - time.time()) < 600
        assert batch.data_parallel_rank == 0
        for event in batch.events:
            kinds.add(type(event).__name__)
            if isinstance(event, events.BlockStored):
                assert len(event.token_ids) == len(event.block_hashes) * event.block_size
                assert event.block_size == BLOCK
                assert event.medium in ("GPU", "CPU", "STORAGE")
                assert event.group_idx is None
                loras.add(event.lora_name)
        # vLLM's classes write the same fields, but for the salt.
        said = msgspec.msgpack.decode(payload)
        for event in said[1]:
            salts.add(event.pop("cache_salt", None))
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(batch)) == said
    assert (loras, salts) == ({None, "sql"}, {None, "mine"})
    assert kinds == {"BlockStored", "BlockRemoved", "AllBlocksCleared"}
