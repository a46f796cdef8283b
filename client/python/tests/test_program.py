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
from kvlease import _kvlease, bench
from kvlease.__main__ import main

BENCH_LAYOUT = kvlease.Layout("kvlease-bench", kvlease.DType.F16, 1, 1, 64, 16, 4096)


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


def test_refused(shared_daemon: Daemon) -> None:
    """A daemon that answers is reached, and says itself what to do."""
    path = str(shared_daemon.socket.parents[2] / "sock")
    done = run_module("--socket", path)
    assert done.returncode == 1
    assert "tenant     unknown\nreachable  yes, but it refuses\n" in done.stdout
    assert done.stderr.startswith(f"kvlease: {path}: no tenant lists uid {os.getuid()}: ")
    assert "journalctl" not in done.stderr
    said = json.loads(run_module("--socket", path, "--json").stdout)
    assert (said["reachable"], said["error"]["reason"]) == (True, "denied")


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


def test_command_line() -> None:
    done = run_module("--version")
    assert (done.returncode, done.stdout) == (0, f"kvlease {kvlease.version()}\n")
    done = run_module("--help")
    assert done.returncode == 0
    for word in ("--socket", "--json", "--version", "Exit status: 0: reached; 1: not, or refused;"):
        assert word in done.stdout
    for arguments in (("what",), ("--what",)):
        done = run_module(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "usage:" in done.stderr


def test_bench_as_a_program(
    shared_daemon: Daemon,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = str(shared_daemon.socket)
    done = run_module("--socket", path, "bench", "--rounds", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(" us ") == 4
    assert "64 keys" in done.stdout
    done = run_module("--socket", path, "bench", "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    done = run_module("--socket", path, "--json", "bench", "--rounds", "1")
    assert json.loads(done.stdout)["rounds"] == 1
    assert said["rounds"] == 1
    assert [(row["keys"], row["bound"]) for row in said["rows"]] == [(1, None), (64, 3)]
    for row in said["rows"]:
        assert row["ratio"] == pytest.approx(row["python_ns"] / row["c_ns"], 0.01)
    done = run_module("bench", "--help")
    assert done.returncode == 0
    assert "--rounds" in done.stdout
    assert run_module("bench", "--rounds", "0").returncode == 2
    done = run_module("--socket", str(tmp_path / "none"), "bench")
    assert done.returncode == 1
    assert done.stderr.startswith("kvlease: ")

    # Whatever this machine's figures are.
    rows = [bench.Row(1, 4e-6, 1e-6, 4, None), bench.Row(64, 4e-6, 1e-6, 4, 3)]
    monkeypatch.setattr("kvlease.bench.run", lambda connection, rounds: rows)
    for flags, status in (([], 0), (["--check"], 2)):
        monkeypatch.setattr("sys.argv", ["kvlease", "--socket", path, "bench", *flags])
        assert main() == status
        assert capsys.readouterr().out.count("missed") == 1
    del rows[1]
    assert main() == 0


def test_bench_empties_its_namespace(shared_daemon: Daemon) -> None:
    with kvlease.connect(shared_daemon.socket) as conn:
        rows = bench.run(conn, 3)
        assert [row.n_keys for row in rows] == [1, 64]
        assert all(min(row.c, row.python) > 0 for row in rows)
        with conn.namespace(f"kvlease-bench-{os.getpid()}", BENCH_LAYOUT) as ns:
            keys = BENCH_LAYOUT.keys(range(64 * 16))
            assert ns.probe(keys) == b""
            with pytest.raises(kvlease.NotFound, match="evicted"):
                _kvlease.bench_lookup(ns, keys, 1)
