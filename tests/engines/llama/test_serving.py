"""python -m kvlease.llama serve."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import kvlease_conftest as package
import pytest
from gguf_models import make_model
from serving import Server
from support import LIMIT, MEMORY, ctl, held, namespaces

ARGUMENTS = ("--host", "127.0.0.1", "--port", "{port}", "--n_ctx", "2048", "--n_threads", "1")

Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start(module and its arguments, ...): a server, ended with the test."""
    servers: list[Server] = []

    def begin(*command: str) -> Server:
        servers.append(Server(tmp_path / f"{len(servers)}.log", "-m", *command, *ARGUMENTS))
        return servers[-1]

    yield begin
    for server in servers:
        server.kill()


def ask(server: Server, prompt: str) -> str:
    """The greedy answer."""
    body = {"prompt": prompt, "max_tokens": 12, "temperature": 0}
    request = urllib.request.Request(
        f"{server.url}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        return str(json.load(response)["choices"][0]["text"])


def test_two_servers_share(make_daemon: package.MakeDaemon, start: Start, tmp_path: Path) -> None:
    daemon = make_daemon(device=MEMORY, tenant=LIMIT)
    model = make_model(tmp_path / "tiny.gguf", layers=3)
    on = ("kvlease.llama", "--socket", str(daemon.socket), "--chunk-tokens", "64")
    alone = start("llama_cpp.server", "--model", model)
    first, second = (start(*on, "serve", "--model", model) for _ in range(2))
    for server in (alone, first, second):
        server.wait()
    prompt = "AllWorkAndNoPlayMakesJackADullBoy." * 14
    # A token of each byte, of the three of a space before them, and of the beginning.
    n_tokens = len(prompt) + 4
    expected = ask(alone, prompt)
    assert ask(first, prompt) == expected
    (before,) = namespaces(daemon)
    assert ask(second, prompt) == expected
    (after,) = namespaces(daemon)
    assert after["pages_sealed"] == before["pages_sealed"] == n_tokens // 64
    assert after["hits"] - before["hits"] == n_tokens // 64
    names = [client["name"] for client in json.loads(ctl(daemon, "clients", "--json"))["clients"]]
    assert names == ["llama.cpp tiny.gguf"] * 2
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
