"""Models that change, or look alike: what is found is what the model would have computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kvlease_conftest as package
import pytest
from support import failures, held, make_prompts, on

PAGE = 16
PROMPTS = make_prompts(1, 300, 7, 30)
FULL = 300 // PAGE * PAGE

SWAP = """
with torch.no_grad():
    w = self.model.model.embed_tokens.weight
    w[[10, 19]] = w[[19, 10]]
"""
UPDATE = """
with torch.no_grad():
    for p in self.model.parameters():
        p.mul_(1.05)
"""
# Nothing that torch counts, as a fused optimizer.
UNSEEN = """
import ctypes
w = self.model.model.layers[0].mlp.down_proj.weight
for i in range(0, w.numel(), 7):
    ctypes.c_float.from_address(w.data_ptr() + 4 * i).value *= 1.5
"""
PATCH = """
from transformers.models.llama import modeling_llama
old = modeling_llama.LlamaMLP.forward
modeling_llama.LlamaMLP.forward = lambda self, x: old(self, x) * 1.2
"""
PATCH_FUNCTION = """
from transformers.models.llama import modeling_llama
old = modeling_llama.rotate_half
modeling_llama.rotate_half = lambda x: old(x) * 0.5
"""
HOOK = """
self.model.model.layers[1].register_forward_hook(lambda m, x, y: y * 1.1)
"""
ADAPTER = """
steer = torch.ones(128)
mlp = self.model.model.layers[0].mlp
plain = mlp.forward
mlp.forward = lambda x: plain(x) + steer
"""

# How often a model is read, of one call that makes a cache and ends it.
COUNT = """
from kvlease import _identity
take, self.n_digests = _identity.Watched._take, 0
def count(watched):
    self.n_digests += 1
    return take(watched)
_identity.Watched._take = count
m = self.manager
self.model.generate_batch(
    [[5, 6, 7]], m.generation_config, m.continuous_batching_config, max_new_tokens=1
)
assert self.n_digests == 1, self.n_digests
self.n_digests = 0
"""
# Takes away all that tells models apart.
BLIND = """
from kvlease import _identity
_identity.Watched._take = lambda self: bytes(32)
_identity.Watched._mark = lambda self: 0
_identity.Watched._marks = 0
"""

Start = Callable[..., Any]


@pytest.mark.parametrize(
    "change",
    [SWAP, PATCH, PATCH_FUNCTION, HOOK, ADAPTER],
    ids=["swapped-rows", "method", "function", "hook", "instance"],
)
def test_another_model_finds_nothing(
    daemon: package.Daemon, start_engines: Start, change: str
) -> None:
    """... of the one as it was loaded; two that are changed alike share."""
    prompts = [[10, 19] * 100 + prompt for prompt in PROMPTS]
    changed = {"change": change}
    alone, plain, first, second = start_engines(
        changed, on(daemon), on(daemon) | changed, on(daemon) | changed
    )
    expected = alone.call("run", prompts, 16)["tokens"]
    assert plain.call("run", prompts, 16)["tokens"] != expected
    assert first.call("run", prompts[:1], 16)["tokens"] == expected[:1]
    assert first.call("stats")["hit_tokens"] == 0
    assert second.call("run", prompts, 16)["tokens"] == expected
    assert second.call("stats")["hit_tokens"] > 0


@pytest.mark.parametrize("change", [UPDATE, UNSEEN, PATCH], ids=["update", "unseen", "code"])
@pytest.mark.parametrize("door", ["session", "pause"])
def test_a_model_that_changes(
    daemon: package.Daemon, start_engines: Start, change: str, door: str
) -> None:
    """Between the sessions of a persistent manager, and in a pause: it finds nothing of before,
    and nobody else finds what it computes then but who has changed in the same way."""
    # The engine's own cache would keep what it computed before.
    alone, changed, first, second, other = start_engines(
        {}, {"change": change}, on(daemon), on(daemon), on(daemon)
    )
    before = alone.call("run", PROMPTS, 16)["tokens"]
    after = changed.call("run", PROMPTS, 16)["tokens"]
    assert after != before
    assert first.call("run", PROMPTS, 16)["tokens"] == before
    assert second.call("run", PROMPTS, 16)["tokens"] == before
    for engine in (first, second):
        engine.call(door, change)
    n_found = first.call("stats")["hit_tokens"]
    assert first.call("run", PROMPTS[:1], 16)["tokens"] == after[:1]
    assert first.call("stats")["hit_tokens"] == n_found
    n_found = second.call("stats")["hit_tokens"]
    assert second.call("run", PROMPTS, 16)["tokens"] == after
    assert second.call("stats")["hit_tokens"] >= n_found + 2 * FULL
    assert other.call("run", PROMPTS, 16)["tokens"] == before
    assert other.call("stats")["hit_tokens"] >= 2 * FULL
    package.wait_until(lambda: held(daemon) == (6, 0))


def test_a_model_that_stays_keeps_its_pages(daemon: package.Daemon, start_engines: Start) -> None:
    (engine,) = start_engines(on(daemon))
    before = engine.call("run", PROMPTS, 16)["tokens"]
    for door in ("session", "pause"):
        n_found = engine.call("stats")["hit_tokens"]
        engine.call(door, "")
        assert engine.call("run", PROMPTS, 16)["tokens"] == before
        assert engine.call("stats")["hit_tokens"] >= n_found + 2 * FULL


def test_a_first_session_reads_the_model_once(daemon: package.Daemon, start_engines: Start) -> None:
    """Though warmup() has made its cache; again where the model has changed since."""
    (engine,) = start_engines(on(daemon))
    engine.call("run", PROMPTS[:1], 1)
    assert engine.call("do", COUNT) is None
    engine.call("stop")
    for change, n_digests in (("", 1), (UPDATE, 3)):
        begin = f"self.manager.warmup()\n{change}\nself.manager.start()"
        assert engine.call("do", begin) is None
        engine.call("run", PROMPTS[:1], 1)
        engine.call("stop")
        assert engine.call("do", f"assert self.n_digests == {n_digests}, self.n_digests") is None


def test_a_change_in_the_middle(daemon: package.Daemon, start_engines: Start) -> None:
    """While requests run, without a pause: nothing is published or found until the next session."""
    engine, other, alone = start_engines(on(daemon), on(daemon), {})
    expected = alone.call("run", PROMPTS, 16)["tokens"]
    engine.call("run", PROMPTS[:1], 4)
    n_published = engine.call("stats")["published_pages"]
    engine.call("do", UPDATE)
    engine.call("run", PROMPTS, 16)
    assert engine.call("stats")["published_pages"] == n_published
    assert other.call("run", PROMPTS, 16)["tokens"] == expected
    engine.call("session", "")
    engine.call("run", PROMPTS, 16)
    assert engine.call("stats")["published_pages"] > n_published


def test_a_change_in_a_pause_while_requests_run(
    daemon: package.Daemon, start_engines: Start
) -> None:
    """They go on with what both models computed, which is nobody's."""
    engine, other, alone = start_engines(on(daemon), on(daemon), {"change": UPDATE})
    (prompt,) = make_prompts(5, 0, 40)
    request = engine.call("add", prompt, 600)
    package.wait_until(lambda: (engine.call("stats") or {}).get("published_pages", 0) > 3)
    engine.call("pause", UPDATE)
    n_published = engine.call("stats")["published_pages"]
    (result,) = engine.call("results", [request])
    assert engine.call("stats")["published_pages"] == n_published
    other.call("pause", UPDATE)
    text = prompt + result["tokens"]
    assert other.call("run", [text], 8)["tokens"] == alone.call("run", [text], 8)["tokens"]


@pytest.mark.parametrize(
    "change",
    [SWAP, UPDATE, UNSEEN, PATCH, PATCH_FUNCTION, ADAPTER],
    ids=["swapped-rows", "update", "unseen", "method", "function", "instance"],
)
def test_verify_finds_what_no_identity_tells(
    daemon: package.Daemon, start_engines: Start, change: str
) -> None:
    """Without what keeps models apart: the second engine has another one, and finds that out. HOOK
    changes no page: the norm of the next layer takes its factor out again."""
    prompts = [[10, 19] * 100 + prompt for prompt in PROMPTS]
    alone, first, second = start_engines(
        {"change": change},
        on(daemon) | {"change": BLIND},
        on(daemon, verify=1) | {"change": BLIND + change},
    )
    expected = alone.call("run", prompts, 16)["tokens"]
    assert first.call("run", prompts, 16)["tokens"] != expected
    assert second.call("run", prompts, 16)["tokens"] == expected
    assert failures(daemon) == 1
    assert second.call("stats")["hit_tokens"] == 0
