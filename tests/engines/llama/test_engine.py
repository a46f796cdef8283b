"""llama.cpp: families of models, conversations, refusals, and the library's prototypes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import kvlease_conftest as package
import llama_cpp
import pytest
from gguf_models import WINDOW, make_model
from support import ctl, findable, held, make_prompts, on

from kvlease.llama import Llama, Options

TREE = Path(__file__).resolve().parents[3]
CHUNK = 64
Q8_0 = {"flash_attn": True, "type_k": 8, "type_v": 8}


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A llama."""
    return make_model(tmp_path / "model.gguf", layers=3)


def test_the_pinned_release() -> None:
    assert llama_cpp.__version__ == os.environ["KVL_ENGINE_VERSION"]


@pytest.mark.parametrize("batch", ["-DBATCH", "-UBATCH"])
def test_prototypes(batch: str) -> None:
    """Those of symbols.h are those of this release."""
    include = Path(llama_cpp.__file__).parent / "include"
    source = Path(__file__).parent / "prototypes.c"
    command = ["gcc", "-std=gnu11", "-fsyntax-only", batch, f"-I{TREE}", f"-I{include}", source]
    subprocess.run(command, check=True)


@pytest.mark.parametrize(
    ("family", "arguments"),
    [
        ("llama", {}),
        ("llama", Q8_0),
        ("gemma2", {"flash_attn": True}),
        ("mamba", {}),
        ("jamba", {}),
    ],
    ids=["llama-f16", "llama-q8_0", "gemma2", "mamba", "jamba"],
)
def test_families(
    daemon: package.Daemon,
    start_engines: Any,
    tmp_path: Path,
    family: str,
    arguments: dict[str, Any],
) -> None:
    """A second process finds all full chunks, beyond a window as well, and says the same."""
    settings = {"model": make_model(tmp_path / "model.gguf", family), "llama": arguments}
    both = settings | on(daemon, chunk_tokens=CHUNK)
    alone, first, second = start_engines(settings, both, both)
    prompts = make_prompts(1, WINDOW + 20, 100, 200)
    expected = alone.call("run", prompts, 16)["tokens"]
    assert len(set(expected[0])) > 2
    assert first.call("run", prompts, 16)["tokens"] == expected
    assert second.call("run", prompts, 16)["tokens"] == expected
    assert second.call("stats")["hit_tokens"] == sum(findable(prompts, CHUNK))
    # Models with states find them where prompts ended, and nothing between.
    if family in ("llama", "gemma2"):
        assert first.call("stats")["hit_tokens"] == (WINDOW + 20) // CHUNK * CHUNK
    first.call("stop")
    second.call("stop")
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")


def test_a_long_prefix(daemon: package.Daemon, start_engines: Any, tmp_path: Path) -> None:
    """2,500 tokens are loaded in a small part of the time that they take to compute."""
    settings = {"model": make_model(tmp_path / "model.gguf", size=512, layers=6)}
    alone, first, second = start_engines(settings, settings | on(daemon), settings | on(daemon))
    (prompt,) = make_prompts(2, 0, 2500)
    answers = [engine.call("run", [prompt], 8) for engine in (alone, first, second)]
    assert answers[0]["tokens"] == answers[1]["tokens"] == answers[2]["tokens"]
    assert second.call("stats")["hit_tokens"] == 2499 // 256 * 256
    seconds = [answer["first"][0] for answer in answers]
    loading = second.call("time_load", prompt)
    print(
        f"seconds to the first token: without kvlease {seconds[0]:.2f}, first {seconds[1]:.2f}, "
        f"second {seconds[2]:.2f}; loading alone {loading:.4f}"
    )
    assert loading < seconds[0] / 10


def test_conversations(daemon: package.Daemon, start_engines: Any, model: str) -> None:
    """Answers are saved, too, and a turn goes on in another process."""
    both = {"model": model} | on(daemon, chunk_tokens=CHUNK)
    alone, first, second = start_engines({"model": model}, both, both)
    (prompt,) = make_prompts(3, 0, CHUNK + 5)
    (answer,) = first.call("run", [prompt], 2 * CHUNK)["tokens"]
    turn = [prompt + answer + make_prompts(4, 0, 20)[0]]
    expected = alone.call("run", turn, 16)["tokens"]
    assert second.call("run", turn, 16)["tokens"] == expected
    # The last token of an answer isn't computed: 69 + 128 - 1 tokens are.
    assert second.call("stats")["hit_tokens"] == 3 * CHUNK


def test_what_a_context_has_is_not_loaded(
    daemon: package.Daemon, start_engines: Any, model: str
) -> None:
    alone, first, second = start_engines(
        {"model": model}, *[{"model": model} | on(daemon, chunk_tokens=CHUNK)] * 2
    )
    prompts = make_prompts(5, 3 * CHUNK + 10, 100, 150)
    expected = alone.call("run", prompts, 4)["tokens"]
    first.call("run", prompts, 4)
    assert second.call("run", prompts, 4, True)["tokens"] == expected
    # Of the second prompt the context has the beginning, and a part of the next chunk.
    n_loaded = [(len(prompt) - 1) // CHUNK * CHUNK for prompt in prompts]
    assert second.call("stats")["hit_tokens"] == n_loaded[0] + n_loaded[1] - (3 * CHUNK + 10)


def test_the_same_numbers_have_the_same_identity(
    daemon: package.Daemon, start_engines: Any, model: str
) -> None:
    """Whatever the number of threads, the size of batches and of the context, and the file's
    name."""
    copy = Path(model).with_name("copy.gguf")
    copy.write_bytes(Path(model).read_bytes())
    changes: list[dict[str, Any]] = [
        {"n_threads": 2, "n_threads_batch": 2},
        {"n_batch": 64, "n_ubatch": 32},
        {"n_ctx": 8192},
    ]
    engines = start_engines(
        {"model": model} | on(daemon),
        {"model": str(copy)} | on(daemon),
        *({"model": model, "llama": change} | on(daemon) for change in changes),
    )
    assert len({engine.call("identity") for engine in engines}) == 1


def test_a_daemon_that_comes_later(daemon: package.Daemon, start_engines: Any, model: str) -> None:
    daemon.stop()
    alone, engine = start_engines(
        {"model": model}, {"model": model} | on(daemon, chunk_tokens=CHUNK)
    )
    prompts = make_prompts(6, 100, 50, 60)
    expected = alone.call("run", prompts, 4)["tokens"]
    assert engine.call("run", prompts, 4)["tokens"] == expected
    daemon.start()

    def hits() -> bool:
        assert engine.call("run", prompts, 4)["tokens"] == expected
        return bool(engine.call("stats")["hit_tokens"])

    package.wait_until(hits)


@pytest.mark.parametrize(
    ("family", "arguments", "sentence"),
    [
        ("llama", {"logits_all": True}, "logits_all"),
        ("llama", {"embedding": True}, "embedding"),
        ("gemma2", {"swa_full": False}, "swa_full"),
    ],
)
def test_refused(
    daemon: package.Daemon,
    tmp_path: Path,
    family: str,
    arguments: dict[str, Any],
    sentence: str,
) -> None:
    path = make_model(tmp_path / "model.gguf", family)
    options = Options(socket=daemon.socket)
    with pytest.raises(ValueError, match=sentence):
        Llama(path, kvlease=options, verbose=False, **arguments)
