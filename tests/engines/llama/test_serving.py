"""python -m kvlease.llama serve."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import kvlease_conftest as package
from gguf_models import make_model
from serving import Server
from support import client_names, ctl, held, namespaces

ARGUMENTS = ("--host", "127.0.0.1", "--port", "{port}", "--n_ctx", "2048", "--n_threads", "1")


def test_two_servers_share(daemon: package.Daemon, start_server: Any, tmp_path: Path) -> None:
    model = make_model(tmp_path / "tiny.gguf", layers=3)
    on = ("kvlease.llama", "--socket", str(daemon.socket), "--chunk-tokens", "64")
    ours = ("-m", *on, "serve", "--model", model, *ARGUMENTS)
    alone = start_server(Server, "-m", "llama_cpp.server", "--model", model, *ARGUMENTS)
    first, second = (start_server(Server, *ours) for _ in range(2))
    for server in (alone, first, second):
        server.wait()
    text = "AllWorkAndNoPlayMakesJackADullBoy." * 14
    # A token of each byte, of the three of a space before them, and of the beginning.
    n_tokens = len(text) + 4
    body = {"prompt": text, "max_tokens": 12}
    expected = alone.complete(**body)
    assert first.complete(**body) == expected
    (before,) = namespaces(daemon)
    assert second.complete(**body) == expected
    (after,) = namespaces(daemon)
    assert after["pages_sealed"] == before["pages_sealed"] == n_tokens // 64
    assert after["hits"] - before["hits"] == n_tokens // 64
    assert client_names(daemon) == ["llama.cpp tiny.gguf"] * 2
    for server in (first, second):
        server.stop()
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")


def test_the_command_line() -> None:
    command = [sys.executable, "-m", "kvlease.llama"]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert "usage: python -m kvlease.llama [OPTION...] serve" in ended.stderr
    shown = subprocess.run([*command, "--help"], stdout=subprocess.PIPE, text=True, check=True)
    assert "--chunk-tokens" in shown.stdout
