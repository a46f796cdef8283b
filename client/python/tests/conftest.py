"""A private daemon for each test that asks for one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
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

    def __init__(self, directory: Path, keep: bool, device: str, tenant: str) -> None:
        self.directory = directory
        self.socket = directory / "run/t/a/sock"
        self.log = directory / "log"
        self._keep = keep
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("run", "state"):
            (directory / name).mkdir()
        (directory / "conf").write_text(
            f"[daemon]\ndevices = host\nruntime_dir = {directory}/run\n"
            f"state_dir = {directory}/state\n[device host]\n{device}\n[tenant a]\n{tenant}\n"
        )

    def start(self) -> None:
        """Returns when it serves."""
        program = [str(BUILD / "daemon/server/kvleased"), "--config", str(self.directory / "conf")]
        if self._keep:
            program += ["--keep", "--keep-young=1ms"]
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
        """Ends it, whatever state it is in."""
        process, self._process = self._process, None
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
    """Starts daemons: make_daemon(keep=False, device=..., tenant=...)."""
    daemons: list[Daemon] = []
    with tempfile.TemporaryDirectory(prefix="kvl-") as top:

        def make(
            *,
            keep: bool = False,
            device: str = "memory = 64MiB\nextent = 2MiB",
            tenant: str = "limit = 32MiB",
        ) -> Daemon:
            directory = Path(top) / str(len(daemons))
            directory.mkdir()
            daemons.append(Daemon(directory, keep, device, tenant))
            daemons[-1].start()
            return daemons[-1]

        yield make
        for daemon in daemons:
            daemon.stop()


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
