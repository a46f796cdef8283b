"""Engines on two hosts, which share a store: what one has computed the other one loads."""

from __future__ import annotations

from typing import Any

import kvlease_conftest as package
import pytest
from support import (
    LIMIT,
    MEMORY,
    assert_measures_prefill,
    ctl,
    findable,
    held,
    make_prompts,
    published,
)

PAGE = 32
# Texts of fewer than 256 tokens aren't loaded.
PROMPTS = make_prompts(1, 500, 7, 310)


def test_what_computing_takes(
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any, store: package.Store
) -> None:
    daemon = make_daemon(device=MEMORY, tenant=store.settings(LIMIT, prefill=0))
    (engine,) = start_engines(settings(daemon))
    assert_measures_prefill(daemon, engine)


@pytest.mark.parametrize("mode", ["in_place", "copy"])
def test_a_second_host_finds_what_the_first_computed(
    make_daemon: package.MakeDaemon,
    start_engines: Any,
    settings: Any,
    store: package.Store,
    mode: str,
) -> None:
    options = {"mode": mode}
    here, there = (make_daemon(device=MEMORY, tenant=store.settings(LIMIT)) for _ in range(2))
    alone, first, second = start_engines(
        settings(),
        settings(there, kvlease=options),
        settings(here, kvlease=options | {"remote_timeout": 60}),
    )
    expected = alone.call("run", PROMPTS, 24)
    store.await_epoch(there)
    # What nobody finds stays where it is; vLLM's own cache asks nobody.
    for _ in range(2):
        assert first.call("run", PROMPTS, 24)["tokens"] == expected["tokens"]
        if mode == "copy":
            assert first.call("reset") is True
    store.await_pages(there, max(findable(PROMPTS, PAGE)) // PAGE)
    found = second.call("run", PROMPTS, 24)
    assert found["tokens"] == expected["tokens"]
    assert found["found"] == findable(PROMPTS, PAGE)

    # Other texts are computed here, with a store that says nothing and with none at all.
    (other,) = make_prompts(2, 600, 0)
    computed = alone.call("run", [other], 4)
    store.pause(True)
    assert second.call("run", [other], 4)["tokens"] == computed["tokens"]
    store.process.kill()
    store.pause(False)
    assert published(here) > 0
    assert second.call("run", PROMPTS, 24)["tokens"] == expected["tokens"]
    for engine in (first, second):
        engine.call("stop")
    package.wait_until(lambda: held(here) == held(there) == (0, 0))
    assert "consistent" in ctl(here, "check")
