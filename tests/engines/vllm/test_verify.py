"""Some texts that are found are computed all the same: pages with other numbers are found out."""

from __future__ import annotations

from typing import Any

import kvlease_conftest as package
from support import LIMIT, MEMORY, ctl, failures, held, make_prompts, published

PROMPTS = make_prompts(1, 200, 40, 70)
# Weights that are said to be the same, so that their digest doesn't keep engines apart.
SAME = {"weights": "said to be the same", "verify": 1}


def test_equal_engines_agree(
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any
) -> None:
    daemon = make_daemon(device=MEMORY, tenant=LIMIT)
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
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any, models: Any
) -> None:
    daemon = make_daemon(device=MEMORY, tenant=LIMIT)
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
