"""A private daemon for each test that asks for one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kvlease

# Not tuned: long enough for a loaded machine.
START_SECONDS = 60

TREE = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("KVL_BUILD", TREE / "build"))

LAYOUT = kvlease.Layout(
    model="test",
    dtype=kvlease.DType.F16,
    n_layers=1,
    n_kv_heads=1,
    head_size=64,
    page_tokens=16,
    plane_page_bytes=4096,
)


class Daemon:
    """kvleased with a configuration, a runtime directory and a tenant "a" of its own."""

    def __init__(
        self, directory: Path, keep: bool, device: str, tenant: str, name: str = "host"
    ) -> None:
        self.directory = directory
        self.socket = directory / "run/t/a/sock"
        self.log = directory / "log"
        self._keep = keep
        self._process: subprocess.Popen[bytes] | None = None
        self._exchange: subprocess.Popen[bytes] | None = None
        self._exchange_socket = directory / "exchange.sock" if "[remote " in tenant else None
        for part in ("run", "state"):
            (directory / part).mkdir()
        (directory / "conf").write_text(
            f"[daemon]\ndevices = {name}\nruntime_dir = {directory}/run\n"
            f"state_dir = {directory}/state\n"
            + (f"exchange_socket = {self._exchange_socket}\n" if self._exchange_socket else "")
            + f"[device {name}]\n{device}\n[tenant a]\n{tenant}\n"
        )

    def start(self) -> None:
        """Returns when it serves."""
        program = [str(BUILD / "daemon/server/kvleased"), "--config", str(self.directory / "conf")]
        if self._keep:
            program += ["--keep", "--keep-young=1ms"]
        if self._exchange_socket and not self._exchange:
            exchange = [str(BUILD / "daemon/network/kvlease-exchange"), "--socket"]
            self._exchange = subprocess.Popen([*exchange, str(self._exchange_socket)])
        notify = self.directory / "notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, self.log.open("ab") as log:
            ready.bind(str(notify))
            ready.settimeout(START_SECONDS)
            self._process = subprocess.Popen(
                program, env=os.environ | {"NOTIFY_SOCKET": str(notify)}, stdout=log, stderr=log
            )
            while b"READY=1" not in ready.recv(4096):
                pass
        notify.unlink()

    def server_pid(self) -> int:
        """The process that serves: with --keep, the child of the one that was started."""
        assert self._process
        if not self._keep:
            return self._process.pid
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return int(children.read_text().split()[0])

    def kill(self) -> None:
        """SIGKILL; with --keep another one takes over at once."""
        pid = self.server_pid()
        os.kill(pid, signal.SIGKILL)
        if self._keep:
            wait_until(lambda: self._other_child(pid))
        else:
            assert self._process
            self._process.wait()

    def _other_child(self, pid: int) -> bool:
        try:
            return self.server_pid() != pid
        except IndexError:
            return False

    def pause(self, on: bool) -> None:
        """Stops the server, so that it answers nothing, or lets it go on."""
        os.kill(self.server_pid(), signal.SIGSTOP if on else signal.SIGCONT)

    def ctl(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts kvleasectl."""
        program = [str(BUILD / "client/ctl/kvleasectl"), "--socket"]
        return subprocess.Popen(
            [*program, str(self.directory / "run/admin.sock"), *arguments],
            stdout=subprocess.DEVNULL,
        )

    def ctl_json(self, *arguments: str) -> Any:
        """What kvleasectl --json prints."""
        program = [str(BUILD / "client/ctl/kvleasectl"), "--json", "--socket"]
        socket_path = str(self.directory / "run/admin.sock")
        return json.loads(subprocess.check_output([*program, socket_path, *arguments]))

    def figure(self, name: str) -> int:
        """One of those of kvleasectl status."""
        return int(self.ctl_json("status")[name])

    def stop(self) -> None:
        """Ends it, whatever state it is in, and its kvlease-exchange."""
        processes = [self._process, self._exchange]
        self._process = self._exchange = None
        for process in processes:
            if process and process.poll() is None:
                process.terminate()
                try:
                    process.wait(START_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def wait_until(is_so: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    """Until is_so() holds, or fails."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it didn't happen in time"
        time.sleep(0.002)


MakeDaemon = Callable[..., Daemon]


@pytest.fixture
def make_daemon() -> Iterator[MakeDaemon]:
    """Starts daemons: make_daemon(keep=False, name="host", device=..., tenant=...)."""
    daemons: list[Daemon] = []
    with tempfile.TemporaryDirectory(prefix="kvl-") as top:

        def make(
            *,
            keep: bool = False,
            name: str = "host",
            device: str = "memory = 64MiB\nextent = 2MiB",
            tenant: str = "limit = 32MiB",
        ) -> Daemon:
            directory = Path(top) / str(len(daemons))
            directory.mkdir()
            daemons.append(Daemon(directory, keep, device, tenant, name))
            daemons[-1].start()
            return daemons[-1]

        yield make
        for daemon in daemons:
            daemon.stop()


def await_redis(process: subprocess.Popen[bytes], port: int) -> None:
    """Until it answers."""
    end = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, f"redis-server ended with {process.returncode}"
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(16).startswith(b"+PONG"):
                    return
        except OSError:
            pass
        assert time.monotonic() < end, "redis-server doesn't answer"
        time.sleep(0.01)


@dataclass
class Store:
    """A redis-server, which hosts that know it write pages to and load them from."""

    process: subprocess.Popen[bytes]
    port: int

    def settings(self, limit: str = "limit = 32MiB", prefill: int = 1) -> str:
        """Of a tenant, which computes a token a second: pages are loaded whatever it takes. prefill
        0: as its engines measure."""
        return (
            f"{limit}\nremote = x\nremote_prefill = {prefill}\n"
            f"[remote x]\naddresses = 127.0.0.1:{self.port}\nprobe_timeout = 1s"
        )

    def pause(self, on: bool) -> None:
        """Stops it, so that it answers nothing, or lets it go on."""
        self.process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def count(self, pattern: str) -> int:
        """Keys of the tenant that match."""
        keys = ["redis-cli", "-p", str(self.port), "--raw", "keys", f"kvl:1:a:{pattern}"]
        return len(subprocess.check_output(keys).split())

    @staticmethod
    def await_epoch(daemon: Daemon) -> None:
        """Until that host knows the epoch of its only namespace. Pages that are published earlier
        stay there."""
        wait_until(
            lambda: any(
                each["n_namespaces_ready"] for each in daemon.ctl_json("exchanges")["exchanges"]
            )
        )

    def await_pages(self, daemon: Daemon, n: int) -> None:
        """Until so many were written to it by that host, where all were found by somebody."""

        def is_there() -> bool:
            daemon.figure("publishes")  # it looks at what lies in rings
            return self.count("*:0") >= n

        wait_until(is_there)


def find_redis(top: str) -> str:
    """The server, which Debian has in redis-tools, too: a program that is what its name says. A
    link with that name is made in the folder `top`."""
    in_tools = "/usr/bin/redis-check-rdb"
    found = os.environ.get("KVL_REDIS") or shutil.which("redis-server")
    if found:
        return found
    if not os.access(in_tools, os.X_OK):
        pytest.skip("there is no redis-server here (Debian: redis-tools)")
    os.symlink(in_tools, Path(top) / "redis-server")
    return str(Path(top) / "redis-server")


@pytest.fixture
def store() -> Iterator[Store]:
    """Skipped with a sentence where there is no redis-server."""
    with tempfile.TemporaryDirectory(prefix="kvl-") as top, socket.create_server(("", 0)) as free:
        program = find_redis(top)
        port = free.getsockname()[1]
        free.close()
        process = subprocess.Popen(
            [program, "--port", str(port), "--save", "", "--dir", top],
            stdout=subprocess.DEVNULL,
        )
        try:
            await_redis(process, port)
            yield Store(process, port)
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def shared_daemon() -> Iterator[Daemon]:
    """One daemon for the tests of a file that leave it as it was."""
    with tempfile.TemporaryDirectory(prefix="kvl-") as top:
        daemon = Daemon(Path(top), False, "memory = 1GiB\nextent = 2MiB", "limit = 1GiB")
        daemon.start()
        yield daemon
        daemon.stop()


@pytest.fixture(params=["shm", "socket"])
def connection(
    shared_daemon: Daemon, request: pytest.FixtureRequest
) -> Iterator[kvlease.Connection]:
    """A connection to the shared daemon, in both ways to talk."""
    conn = kvlease.connect(shared_daemon.socket, shm=request.param == "shm")
    yield conn
    conn.close()


@pytest.fixture
def namespace(
    connection: kvlease.Connection, request: pytest.FixtureRequest
) -> Iterator[kvlease.Namespace]:
    """An empty namespace of its own."""
    name = f"n{abs(hash(request.node.nodeid)) % 10**12}"
    ns = connection.namespace(name, LAYOUT)
    yield ns
    if not ns.is_closed:
        ns.invalidate()
        ns.close()
