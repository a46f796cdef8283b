"""Some texts that are found are computed all the same: pages with other numbers are found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kvlease_conftest as package
import pytest
from models import make_adapter
from support import ctl, failures, held, make_prompts, published

PROMPTS = make_prompts(1, 200, 40, 70)
# Weights that are said to be the same, so that their digest doesn't keep engines apart.
SAME = {"weights": "said to be the same", "verify": 1}
# Takes away all that tells models and adapters apart.
BLIND = """
from kvlease import _identity
from kvlease.vllm import weights
_identity.Watched._take = lambda self: bytes(32)
_identity.Watched._mark = lambda self: 0
_identity.Watched._marks = 0
weights.hash_values = lambda value: bytes(32)
"""
PATCH = """
from vllm.model_executor.models.llama import LlamaMLP
plain = LlamaMLP.forward
LlamaMLP.forward = lambda self, x: plain(self, x) * 1.2
"""
RELOAD = "self.engine.collective_rpc('reload_weights', kwargs={'weights_path': %r})"
LORA = {"enable_lora": True, "max_loras": 1, "max_lora_rank": 8}


def test_equal_engines_agree(daemon: package.Daemon, start_engines: Any, settings: Any) -> None:
    alone, first, second = start_engines(
        settings(), settings(daemon), settings(daemon, kvlease=SAME | {"weights": None})
    )
    expected = alone.call("run", PROMPTS, 24)["tokens"]
    assert first.call("run", PROMPTS, 24)["tokens"] == expected
    n_pages = published(daemon)
    verified = second.call("run", PROMPTS, 24)
    assert verified["tokens"] == expected
    assert verified["found"] == [0] * len(PROMPTS)
    stats = second.call("stats")
    assert stats["verified"] == len(PROMPTS)
    assert stats["compared_pages"] == stats["duplicate_pages"] > 0
    assert published(daemon) == n_pages
    assert failures(daemon) == 0
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")


def test_other_weights_are_found_out(
    daemon: package.Daemon, start_engines: Any, settings: Any, models: Any
) -> None:
    other = models(seed=1)
    alone, first, second = start_engines(
        settings(model=other),
        settings(daemon, kvlease=SAME),
        settings(daemon, kvlease=SAME, model=other),
    )
    first.call("run", PROMPTS, 24)
    expected = alone.call("run", PROMPTS, 24)["tokens"]
    assert second.call("run", PROMPTS, 24)["tokens"] == expected
    assert failures(daemon) == 1
    # It has left: what the first engine publishes from now on it doesn't find.
    first.call("run", PROMPTS, 24)
    for prompt, tokens in zip(PROMPTS, expected, strict=True):
        alone_again = second.call("run", [prompt], 24)
        assert (alone_again["found"], alone_again["tokens"]) == ([0], [tokens])
    package.wait_until(lambda: held(daemon) == (0, 0))


def run(engine: Any, **options: Any) -> list[list[list[int]]]:
    """Tokens of each prompt by itself: requests share nothing but what is cached."""
    return [engine.call("run", [prompt], 16, options)["tokens"][0] for prompt in PROMPTS]


@pytest.mark.parametrize("what", ["code", "reload", "adapter"])
def test_finds_what_no_identity_tells(
    daemon: package.Daemon,
    start_engines: Any,
    settings: Any,
    models: Any,
    tmp_path: Path,
    what: str,
) -> None:
    """Without what keeps models apart: the second engine has another one, and finds that out."""
    lora = LORA if what == "adapter" else {}
    patch = PATCH if what == "code" else ""
    verify = settings(daemon, kvlease={"verify": 1}, **lora)
    alone, first, second = start_engines(
        settings(**lora) | {"before": patch},
        settings(daemon, **lora) | {"before": BLIND},
        verify | {"before": BLIND + patch},
    )
    options = {"adapter": make_adapter(tmp_path / "adapter", 1)} if lora else {}
    if what == "reload":
        for engine in (alone, second):
            engine.call("change", RELOAD % models(1))
    for _ in range(2):  # an adapter is known once it is loaded
        computed = run(first, **options)
    if what == "adapter":
        make_adapter(tmp_path / "adapter", 2)
    expected = run(alone, **options)
    assert expected != computed
    for _ in range(2):
        assert run(second, **options) == expected
    assert failures(daemon) == 1
    assert published(daemon) == 0
    package.wait_until(lambda: held(daemon) == (0, 0))
