"""`transformers serve` on pages of kvlease."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import kvlease_conftest as package
import pytest
from models import make_llama
from serving import Server
from support import client_names, ctl, held, make_prompts, namespaces
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


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Folder of a model of random weights whose tokens are words: t0, t1, ..."""
    folder = tmp_path / "tiny"
    make_llama(folder)
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(512)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t511").save_pretrained(folder)
    return str(folder)


def test_two_servers_share(daemon: package.Daemon, start_server: Any, model: str) -> None:
    on = ("kvlease.transformers", "--socket", str(daemon.socket))
    serve = ("serve", model, *OPTIONS)
    alone = start_server(Server, "-m", "transformers.cli.transformers", *serve, *SIZES)
    first, second = (start_server(Server, "-m", *on, *serve) for _ in range(2))
    for server in (alone, first, second):
        server.wait()
    (prompt,) = make_prompts(50, 0, 1000)
    text = " ".join(f"t{token}" for token in prompt)
    body = {"model": model, "prompt": text, "max_tokens": 10}
    expected = alone.complete(**body)
    assert len(expected.split()) == 10
    assert first.complete(**body) == expected
    (before,) = namespaces(daemon)
    assert second.complete(**body) == expected
    (after,) = namespaces(daemon)
    for server in (first, second):
        used = Path(f"/proc/{server.process.pid}/status").read_text()
        assert int(used.split("VmHWM:")[1].split()[0]) < 3 << 20  # KiB; torch alone takes 0.5 GiB
    # The second server computed nothing that the first one had published.
    assert after["pages_sealed"] == before["pages_sealed"] == 1009 // PAGE
    assert after["hits"] - before["hits"] == 999 // PAGE
    assert client_names(daemon) == ["transformers tiny"] * 2
    for server in (first, second):
        server.stop()
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")


def test_what_computes_on_no_pages_is_refused() -> None:
    command = [sys.executable, "-m", "kvlease.transformers", "serve", "model"]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert "--continuous-batching" in ended.stderr.splitlines()[-1]
