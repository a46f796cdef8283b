"""python -m kvlease."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Daemon, MakeDaemon

import kvlease


def run_module(
    *arguments: str | bytes, **environment: str | bytes
) -> subprocess.CompletedProcess[str]:
    """python -m kvlease."""
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-m", "kvlease", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_reached(shared_daemon: Daemon) -> None:
    path = str(shared_daemon.socket)
    wanted = f"version    {kvlease.version()}\nsocket     {path}\ntenant     a\nreachable  yes\n"
    for done in (
        run_module("--socket", path),
        run_module("status", KVLEASE_SOCKET=path),
        run_module("--socket", path, KVLEASE_SOCKET="/nowhere"),
    ):
        assert (done.returncode, done.stdout, done.stderr) == (0, wanted, "")
    done = run_module("--json", "--socket", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "version": kvlease.version(),
        "socket": path,
        "tenant": "a",
        "reachable": True,
        "error": None,
    }


def test_not_reached(tmp_path: Path) -> None:
    """Exit status 1, and a sentence with the socket and what to do."""
    path = str(tmp_path / "none")
    done = run_module("--socket", path)
    assert done.returncode == 1
    assert f"socket     {path}\ntenant     unknown\nreachable  no\n" in done.stdout
    assert done.stderr.startswith("kvlease: ")
    assert done.stderr.count(path) == 1
    assert "systemctl start kvleased" in done.stderr
    done = run_module("--socket", path, "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")
    assert (said["reachable"], said["tenant"]) == (False, None)
    assert said["error"]["reason"] == "unreachable"
    assert said["error"]["code"] < 0
    assert path in said["error"]["sentence"]
    done = run_module("--socket", path, "bench")
    assert done.returncode == 1
    assert path in done.stderr


def test_paths_that_are_no_text(tmp_path: Path) -> None:
    path = bytes(tmp_path / "none") + b"\xff"
    done = run_module("--socket", path)
    assert done.returncode == 1
    assert "none\\" in done.stdout
    assert "none\\" in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(kvlease.Unreachable, match="none"):
        kvlease.connect(os.fsdecode(path))
    done = run_module("--socket", "x" * 200)
    assert done.returncode == 1
    assert "shorter" in done.stderr


def test_stopped_daemon(make_daemon: MakeDaemon) -> None:
    """The library's sentence names neither socket nor remedy."""
    daemon = make_daemon()
    daemon.pause(True)
    try:
        done = run_module("--socket", str(daemon.socket))
    finally:
        daemon.pause(False)
    assert done.returncode == 1
    assert str(daemon.socket) in done.stderr
    assert "kvleasectl status" in done.stderr


def test_command_line(shared_daemon: Daemon) -> None:
    done = run_module("--version")
    assert (done.returncode, done.stdout) == (0, f"kvlease {kvlease.version()}\n")
    done = run_module("--help")
    assert done.returncode == 0
    for word in ("--socket", "--json", "--version", "Exit status: 0: reached; 1: not; 2:"):
        assert word in done.stdout
    for arguments in (("what",), ("--what",), ("--json", "bench")):
        done = run_module(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "usage:" in done.stderr
    done = run_module("--socket", str(shared_daemon.socket), "--rounds", "200", "bench")
    assert done.returncode == 0, done.stderr
    assert "64 keys" in done.stdout
