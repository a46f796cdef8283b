"""Slots of llama-server: its own files, and pages by client/examples/llama-slots.c.

KVL_LLAMA_SERVER names the program; else it is looked for in $PATH. No package has it. It can be
built from llama-cpp-python's sdist: vendor/llama.cpp, target llama-server, with cmake's options
LLAMA_USE_PREBUILT_UI and LLAMA_OPENSSL off.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kvlease_conftest as package
import llama_cpp
import pytest
from gguf_models import make_model
from serving import Server
from support import ctl, held, make_prompts, published

LLAMA = Path(llama_cpp.__file__).parent
PROGRAM = shutil.which(os.environ.get("KVL_LLAMA_SERVER", "llama-server")) or ""
EXAMPLE = Path(__file__).parents[3] / "client/examples/llama-slots.c"
CHUNK = 256  # of llama-slots.c
N_CHUNKS = 3
TEXT = make_prompts(1, 0, N_CHUNKS * CHUNK + 40)[0]
N_TOKENS = 12
# The last token of an answer isn't in the cache.
N_SAVED = len(TEXT) + N_TOKENS - 1
Start = Callable[..., Server]
pytestmark = pytest.mark.skipif(not PROGRAM, reason="there is no llama-server (KVL_LLAMA_SERVER)")


def post(server: Server, path: str, **body: Any) -> dict[str, Any]:
    """The answer; RuntimeError with the server's sentence."""
    url, head = f"{server.url}/{path}", {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    try:
        with urllib.request.urlopen(request) as response:
            return dict(json.load(response))
    except urllib.error.HTTPError as error:
        raise RuntimeError(error.read().decode()) from None


def complete(server: Server, **options: Any) -> tuple[list[int], int]:
    """Tokens of the greedy answer to TEXT, and how many of TEXT weren't computed."""
    body = {"prompt": TEXT, "n_predict": N_TOKENS, "temperature": 0, "ignore_eos": True}
    answer = post(server, "completion", **body, return_tokens=True, **options)
    return answer["tokens"], answer["timings"]["cache_n"]


@pytest.fixture(scope="session")
def preload(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The example, built as its head says."""
    library = tmp_path_factory.mktemp("example") / "llama-slots.so"
    build = Path(os.environ["KVL_BUILD"])
    wanted = ["pkg-config", "--cflags", "--libs", "kvlease", "kvlease-llama"]
    environment = os.environ | {"PKG_CONFIG_PATH": str(build / "meson-uninstalled")}
    flags = subprocess.run(wanted, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    command = ["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library, EXAMPLE]
    command += [f"-I{LLAMA}/include", *flags.stdout.split()]
    command += [f"-Wl,-rpath,{build}/client/{part}" for part in ("lib", "llama")]
    subprocess.run(command, check=True)
    return str(library)


@pytest.fixture
def start(start_server: Any, tmp_path: Path) -> Start:
    """start(option, ..., VARIABLE=value): llama-server with a folder for slots."""

    def one(*options: str, family: str = "llama", **environment: str) -> Server:
        model = make_model(tmp_path / f"{family}.gguf", family)
        (tmp_path / "slots").mkdir(exist_ok=True)
        run = "import os, sys; os.execv('/usr/bin/env', sys.argv)"
        variables = [f"{name}={value}" for name, value in environment.items()]
        command = ["-c", run, *variables, PROGRAM, "--model", model, "--port", "{port}"]
        command += [
            "--slot-save-path",
            f"{tmp_path}/slots/",
            "--ctx-size",
            "4096",
            "--threads",
            "1",
        ]
        server: Server = start_server(Server, *command, *options)
        server.wait()
        # It answers before it has the model.
        package.wait_until(lambda: is_healthy(server), 60)
        return server

    return one


def is_healthy(server: Server) -> bool:
    """Whether it has its model."""
    try:
        urllib.request.urlopen(f"{server.url}/health").close()
    except urllib.error.HTTPError:
        return False
    return True


def restore(server: Server) -> int:
    """Tokens."""
    return int(post(server, "slots/0?action=restore", filename="a")["n_restored"])


@pytest.mark.parametrize(
    ("family", "options", "n_found"),
    [
        ("llama", (), len(TEXT) - 1),
        ("llama", ("--parallel", "1"), len(TEXT) - 1),
        ("gemma2", (), 0),
        ("mamba", (), 0),
        ("jamba", (), 0),
    ],
    ids=["four slots", "one slot", "window", "state", "hybrid"],
)
def test_own_files(start: Start, family: str, options: tuple[str, ...], n_found: int) -> None:
    """What llama-server finds in a slot that it has restored from its own file."""
    first = start(*options, family=family)
    expected, _ = complete(first, id_slot=0)
    assert post(first, "slots/0?action=save", filename="a")["n_saved"] == N_SAVED
    first.kill()
    second = start(*options, family=family)
    assert restore(second) == N_SAVED
    assert complete(second) == (expected, n_found)


@pytest.mark.parametrize(
    ("family", "options"), [("llama", ()), ("gemma2", ("--swa-full",))], ids=["llama", "window"]
)
def test_pages(
    daemon: package.Daemon,
    start: Start,
    preload: str,
    tmp_path: Path,
    family: str,
    options: tuple[str, ...],
) -> None:
    """A server loads what another one saved before its SIGKILL, and answers the same."""
    pages = {"LD_PRELOAD": preload, "KVLEASE_SOCKET": str(daemon.socket)}
    alone = start(*options, family=family)
    expected, _ = complete(alone)
    alone.stop()
    first = start(*options, family=family, **pages)
    assert complete(first, id_slot=0) == (expected, 0)
    assert post(first, "slots/0?action=save", filename="a")["n_saved"] == N_SAVED
    assert published(daemon) == N_CHUNKS
    assert (tmp_path / "slots/a").stat().st_size < 8 * N_SAVED
    first.kill()
    second = start(*options, family=family, **pages)
    assert restore(second) == N_CHUNKS * CHUNK
    assert complete(second) == (expected, N_CHUNKS * CHUNK)
    post(second, "slots/0?action=save", filename="b")
    assert published(daemon) == N_CHUNKS
    # A slot that was in use.
    assert restore(second) == N_CHUNKS * CHUNK
    assert complete(second) == (expected, N_CHUNKS * CHUNK)
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")
    daemon.stop()
    with pytest.raises(RuntimeError, match="Unable to restore slot"):
        restore(second)
    assert complete(second, id_slot=0) == (expected, 0)
    post(second, "slots/0?action=save", filename="c")
    assert (tmp_path / "slots/c").stat().st_size > 8 * N_SAVED


@pytest.mark.parametrize(
    ("family", "options", "why"),
    [
        ("llama", ("--parallel", "2", "--no-kv-unified"), "the context has 2 streams"),
        ("gemma2", (), "a sliding window of 256 tokens"),
        ("mamba", (), "a recurrent state"),
    ],
    ids=["streams", "window", "state"],
)
def test_refusals(
    daemon: package.Daemon,
    start: Start,
    preload: str,
    tmp_path: Path,
    family: str,
    options: tuple[str, ...],
    why: str,
) -> None:
    """Where pages can't be used, llama-server has its own file, and its log says why."""
    pages = {"LD_PRELOAD": preload, "KVLEASE_SOCKET": str(daemon.socket)}
    server = start(*options, family=family, **pages)
    complete(server, id_slot=0)
    assert post(server, "slots/0?action=save", filename="a")["n_saved"] == N_SAVED
    assert (tmp_path / "slots/a").stat().st_size > 8 * N_SAVED
    assert published(daemon) == 0
    assert restore(server) == N_SAVED
    assert why in (tmp_path / "0.log").read_text()
