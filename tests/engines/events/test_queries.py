"""Queries by HTTP: who is refused, and what others may do to a router that asks."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kvlease_conftest as package
import pytest
from worker import LAYOUT, PAGE_TOKENS

import kvlease

PORT = 15560
TOKEN = "0123456789abcdef-secret"
PROMPT = 128 * 1024
EVENTS = str(package.BUILD / "client/events/kvlease-events")
FREE = "tcp://127.0.0.1:*"
OPEN = "Authorization: Bearer " + TOKEN + "\r\n"


def start(daemon: package.Daemon, *arguments: str) -> subprocess.Popen[str]:
    """kvlease-events, which says what is wrong on stderr."""
    socket_path = str(daemon.directory / "run/monitor.sock")
    command = [EVENTS, "--socket", socket_path, "--endpoint", "tcp://127.0.0.1:15561"]
    command += ["--replay", "tcp://127.0.0.1:15562", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def write_token(path: Path, text: str = TOKEN, mode: int = 0o600) -> str:
    """A file with a token."""
    path.write_text(text + "\n")
    path.chmod(mode)
    return str(path)


def request(
    method: str, path: str, body: bytes | Iterator[bytes] = b"", token: str | None = TOKEN
) -> tuple[int, str]:
    """On a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def ask(text: list[int]) -> Any:
    """The answer to token ids."""
    status, said = request("POST", "/v1/prefix", json.dumps({"token_ids": text}).encode())
    assert status == 200, said
    return json.loads(said)


def connect(data: str) -> socket.socket:
    """A connection that has sent this."""
    made = socket.create_connection(("127.0.0.1", PORT), timeout=30)
    made.sendall(data.encode())
    return made


@pytest.fixture
def text() -> list[int]:
    """Four cached pages."""
    return list(range(4 * PAGE_TOKENS))


@pytest.fixture
def events(
    make_daemon: package.MakeDaemon, tmp_path: Path, text: list[int]
) -> Iterator[subprocess.Popen[str]]:
    """kvlease-events at a TCP port, with a token, and a daemon with a text."""
    daemon = make_daemon(tenant="limit = 4MiB\nevents = 64MiB")
    with kvlease.connect(daemon.socket) as connection:
        ns = connection.namespace(layout=LAYOUT)
        with ns.lease(4) as pages:
            ns.publish(pages, LAYOUT.keys(text), token_ids=text).close()
        token = write_token(tmp_path / "token")
        process = start(daemon, "--query", f"127.0.0.1:{PORT}", "--query-token-file", token)
        package.wait_until(is_healthy)
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, process.communicate()


def is_healthy() -> bool:
    """/healthz, without the token."""
    try:
        return request("GET", "/healthz", token=None)[0] == 200
    except OSError:
        return False


def test_answers(events: subprocess.Popen[str], text: list[int]) -> None:
    """As much as is cached, on one connection or many; also of a very long prompt."""
    tiers = {"gpu": 128, "cpu": 128, "disk": 128}
    assert ask(text) == {"tokens": 128, "blocks": 8, "tiers": tiers}
    assert ask(text[:50])["tokens"] == 48
    assert ask([*text[:50], 7, *text[51:]])["tokens"] == 48
    assert ask([7, *text])["tokens"] == 0
    assert ask([*text, *range(200_000, 200_000 + PROMPT)])["tokens"] == 128
    kept = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    for _ in range(3):
        kept.request(
            "POST", "/v1/prefix", '{"token_ids": []}', {"Authorization": f"bearer {TOKEN}"}
        )
        assert json.loads(kept.getresponse().read())["tokens"] == 0
    kept.close()


def test_commands(events: subprocess.Popen[str], tmp_path: Path) -> None:
    """The token that the page makes is accepted; its curl asks with the token of the file."""
    made = tmp_path / "made"
    subprocess.run(f"(umask 077; openssl rand -base64 32 > {made})", shell=True, check=True)
    wrong = [EVENTS, "--query", "nowhere", "--query-token-file", str(made), "--endpoint", FREE]
    wrong += ["--replay", FREE]
    refused = subprocess.run(wrong, stderr=subprocess.PIPE, text=True, check=False)
    assert "neither ADDRESS:PORT" in refused.stderr  # the token was read before
    command = f'curl -s -H "Authorization: Bearer $(cat {tmp_path}/token)"'
    command += f""" -d '{{"token_ids": [0]}}' http://127.0.0.1:{PORT}/v1/prefix"""
    assert json.loads(subprocess.check_output(command, shell=True))["tokens"] == 0


def test_refusals(events: subprocess.Popen[str]) -> None:
    """Each with its status and a sentence."""
    body = b'{"token_ids": [1]}'
    for token in (None, "", TOKEN[:-1], TOKEN + "x"):
        assert request("POST", "/v1/prefix", body, token)[0] == 401
    assert request("POST", "/v1/other", body)[0] == 404
    assert request("GET", "/v1/prefix")[0] == 405
    assert request("POST", "/healthz")[0] == 405
    status, said = request("POST", "/v1/prefix", b"\xff\x00garbage")
    assert (status, json.loads(said)) == (400, {"error": "byte 1: a query begins with {"})
    status, said = request("POST", "/v1/prefix", b'{"token_ids": [1], "cache_salt": "a"}')
    assert status == 400 and "token_ids or keys is the last member" in said
    with connect(
        f"POST /v1/prefix HTTP/1.1\r\nHost: a\r\n{OPEN}Content-Length: 4194305\r\n\r\n"
    ) as c:
        assert c.recv(100).startswith(b"HTTP/1.1 413 ")
    twice = "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"
    with connect(f"POST /v1/prefix HTTP/1.1\r\nHost: a\r\n{OPEN}{twice}\r\n") as c:
        assert c.recv(100).startswith(b"HTTP/1.1 400 ")


def test_endless_body(events: subprocess.Popen[str]) -> None:
    """One that announces no length is closed at 4 MiB."""
    sent = 0
    with (
        connect(
            f"POST /v1/prefix HTTP/1.1\r\nHost: a\r\n{OPEN}Transfer-Encoding: chunked\r\n\r\n"
        ) as c,
        pytest.raises(OSError),
    ):
        while True:
            c.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            sent += 0x10000
    assert 4 << 20 <= sent < 32 << 20  # the kernel's buffers take some
    assert is_healthy()


@pytest.mark.parametrize(
    "begun",
    [
        "",
        "POST /v1/pre",
        f"POST /v1/prefix HTTP/1.1\r\nHost: a\r\n{OPEN}Content-Length: 100\r\n\r\n"
        + '{"token_ids": [1',
    ],
)
def test_half_open(events: subprocess.Popen[str], text: list[int], begun: str) -> None:
    """Connections that never end their requests keep nobody out."""
    held = []
    for i in range(300):
        held.append(connect(begun))
        if i % 100 == 0:
            assert ask(text)["tokens"] == 128
    time.sleep(1.2)
    for _ in range(20):
        assert ask(text)["tokens"] == 128
    for connection in held:
        connection.close()
    assert ask(text)["tokens"] == 128


def test_unread_answers(events: subprocess.Popen[str], text: list[int]) -> None:
    """A router that sends and never reads stops only itself."""
    body = '{"token_ids": [1, 2'
    one = f"POST /v1/prefix HTTP/1.1\r\nHost: a\r\n{OPEN}Content-Length: {len(body)}\r\n\r\n{body}"
    with connect("") as c:
        c.setblocking(False)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            try:
                c.send(one.encode() * 20)
            except (BlockingIOError, ConnectionError):
                break
        assert ask(text)["tokens"] == 128


def test_daemon_ends(make_daemon: package.MakeDaemon, tmp_path: Path) -> None:
    """Without pages there is no answer, but a sentence."""
    daemon = make_daemon()
    token = write_token(tmp_path / "token")
    process = start(daemon, "--query", f"127.0.0.1:{PORT}", "--query-token-file", token)
    body = b'{"token_ids": [1]}'
    package.wait_until(lambda: "answering" in (process.stdout.readline() if process.stdout else ""))
    status, said = request("POST", "/v1/prefix", body)
    assert status == 503 and "no namespace matches" in said
    assert request("GET", "/healthz")[0] == 503
    process.kill()
    process.communicate()


def test_wrong_options(make_daemon: package.MakeDaemon, tmp_path: Path) -> None:
    """Refused at the start."""
    daemon = make_daemon()
    token = write_token(tmp_path / "token")
    open_token = write_token(tmp_path / "open", mode=0o644)
    short = write_token(tmp_path / "short", "short-one")
    tcp = ["--query", f"127.0.0.1:{PORT}"]
    for arguments, why in (
        (tcp, "needs --query-token-file"),
        (["--query-token-file", token], "needs --query"),
        ([*tcp, "--query-token-file", open_token], "chmod 600"),
        ([*tcp, "--query-token-file", short], "at least 16"),
        ([*tcp, "--query-token-file", str(tmp_path / "none")], "No such file"),
        (["--query", "nowhere", "--query-token-file", token], "neither ADDRESS:PORT"),
        (["--endpoint", "tcp://127.0.0.1:99999"], "99999: its port"),
        (["--replay", "tcp://127.0.0.1"], "127.0.0.1: its port"),
    ):
        process = start(daemon, *arguments)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 2, said
        assert re.search(why, said), said
        assert TOKEN not in said and "short-one" not in said
