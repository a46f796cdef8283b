"""`transformers serve` on pages of kvlease."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import kvlease_conftest as package
import pytest
from models import make_llama
from serving import Server
from support import LIMIT, MEMORY, ctl, held, make_prompts, namespaces
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAGE = 16
OPTIONS = (
    *("--continuous-batching", "--device", "cpu", "--dtype", "float32"),
    *("--attn-implementation", "sdpa", "--host", "127.0.0.1", "--port", "{port}"),
    *("--cb-block-size", str(PAGE)),
)
# Without kvlease sizes that are left open take nearly all memory of the machine.
SIZES = ("--cb-num-blocks", "512", "--cb-max-batch-tokens", "256")

Start = Callable[..., Server]


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Folder of a model of random weights whose tokens are words: t0, t1, ..."""
    folder = tmp_path / "tiny"
    make_llama(folder)
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(512)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t511").save_pretrained(folder)
    return str(folder)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start(module and its arguments, ...): a server, ended with the test."""
    servers: list[Server] = []

    def begin(*command: str) -> Server:
        servers.append(Server(tmp_path / f"{len(servers)}.log", "-m", *command))
        return servers[-1]

    yield begin
    for server in servers:
        server.kill()


def ask(server: Server, model: str, prompt: list[int], n_tokens: int) -> str:
    """The greedy answer."""
    body = {
        "model": model,
        "prompt": " ".join(f"t{token}" for token in prompt),
        "max_tokens": n_tokens,
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"{server.url}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        return str(json.load(response)["choices"][0]["text"])


def test_two_servers_share(make_daemon: package.MakeDaemon, start: Start, model: str) -> None:
    daemon = make_daemon(device=MEMORY, tenant=LIMIT)
    on = ("kvlease.transformers", "--socket", str(daemon.socket))
    alone = start("transformers.cli.transformers", "serve", model, *OPTIONS, *SIZES)
    first, second = (start(*on, "serve", model, *OPTIONS) for _ in range(2))
    for server in (alone, first, second):
        server.wait()
    (prompt,) = make_prompts(50, 0, 1000)
    expected = ask(alone, model, prompt, 10)
    assert len(expected.split()) == 10
    assert ask(first, model, prompt, 10) == expected
    (before,) = namespaces(daemon)
    assert ask(second, model, prompt, 10) == expected
    (after,) = namespaces(daemon)
    for server in (first, second):
        used = Path(f"/proc/{server.process.pid}/status").read_text()
        assert int(used.split("VmHWM:")[1].split()[0]) < 3 << 20  # KiB; torch alone takes 0.5 GiB
    # The second server computed nothing that the first one had published.
    assert after["pages_sealed"] == before["pages_sealed"] == 1009 // PAGE
    assert after["hits"] - before["hits"] == 999 // PAGE
    names = [client["name"] for client in json.loads(ctl(daemon, "clients", "--json"))["clients"]]
    assert names == ["transformers tiny"] * 2
    for server in (first, second):
        server.stop()
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")


def test_what_computes_on_no_pages_is_refused() -> None:
    command = [sys.executable, "-m", "kvlease.transformers", "serve", "model"]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert "--continuous-batching" in ended.stderr.splitlines()[-1]
