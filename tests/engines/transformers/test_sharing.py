"""Two engines on one daemon: what one has computed the other finds, and tokens stay the same."""

from __future__ import annotations

from typing import Any

import kvlease_conftest as package
from support import LIMIT, MEMORY, ctl, endings, findable, held, make_prompts, on

import kvlease

PAGE = 16
PROMPTS = make_prompts(1, 1000, 7, 20, 33)


def test_a_second_process_finds_what_the_first_computed(
    daemon: package.Daemon, start_engines: Any
) -> None:
    alone, first, second = start_engines({}, on(daemon), on(daemon))
    expected = alone.call("run", PROMPTS, 24)
    computed = first.call("run", PROMPTS, 24)
    found = second.call("run", PROMPTS, 24)
    print(
        f"seconds: without kvlease {expected['seconds']:.2f}, first {computed['seconds']:.2f}, "
        f"second {found['seconds']:.2f}"
    )
    assert computed["tokens"] == found["tokens"] == expected["tokens"]
    stats = second.call("stats")
    assert stats["requests"] == len(PROMPTS)
    assert stats["asked_tokens"] == sum(map(len, PROMPTS))
    assert stats["hit_tokens"] == sum(findable(PROMPTS, PAGE))
    # Requests of one engine share, too, and what they computed beside each other is there once.
    stats = first.call("stats")
    texts = [tuple(p + t[:-1]) for p, t in zip(PROMPTS, expected["tokens"], strict=True)]
    pages = {text[: end + PAGE] for text in texts for end in range(0, len(text) - PAGE + 1, PAGE)}
    assert stats["published_pages"] - stats["duplicate_pages"] == len(pages)
    # Each request was expected while it waited, where anything of it was cached by then.
    package.wait_until(lambda: daemon.figure("expected_fulfilled") >= len(PROMPTS))
    # Without a request an engine holds the two pages of its padding, and nothing after its end.
    package.wait_until(lambda: held(daemon) == (4, 0))
    first.call("stop")
    second.call("stop")
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")


def test_tells_how_requests_end(make_daemon: package.MakeDaemon, start_engines: Any) -> None:
    """By their last two tokens: equal ones have one ending."""
    daemon = make_daemon(device=MEMORY, tenant=LIMIT)
    (engine,) = start_engines(on(daemon))
    ctl(daemon, "trace", "record", "on")
    prompts = make_prompts(3, 0, 40, 40)
    last = [engine.call("run", [p], 20)["tokens"][0][-2:] for p in [*prompts, prompts[0]]]
    first, second, again = endings(daemon, 3)
    assert last[0] == last[2] != last[1]
    assert first == again != second and 0 not in (first, second)


def test_a_step_that_ends_the_request_is_published(
    daemon: package.Daemon, start_engines: Any
) -> None:
    prefills, decodes = start_engines(on(daemon), on(daemon))
    (prompt,) = make_prompts(2, 0, 10 * PAGE + 5)
    (token,) = prefills.call("run", [prompt], 1)["tokens"]
    (tokens,) = decodes.call("run", [prompt], 8)["tokens"]
    assert tokens[:1] == token
    assert decodes.call("stats")["hit_tokens"] == 10 * PAGE
    # The first 5 + 7 of a page's 16 tokens are nobody's; with 5 more it is full.
    (again,) = decodes.call("run", [prompt + tokens + [9] * 8], 1)["tokens"]
    assert len(again) == 1
    assert decodes.call("stats")["hit_tokens"] == 2 * 10 * PAGE


def test_followers_get_token_ids(make_daemon: package.MakeDaemon, start_engines: Any) -> None:
    """A router learns the tokens of each page that an engine publishes."""
    daemon = make_daemon(device=MEMORY, tenant=f"{LIMIT}\nevents = 256MiB")
    (engine,) = start_engines(on(daemon))
    tokens = engine.call("run", PROMPTS, 24)["tokens"]
    texts = [tuple(p + t[:-1]) for p, t in zip(PROMPTS, tokens, strict=True)]
    followed: dict[bytes | None, tuple[int, ...]] = {None: ()}
    with kvlease.Follower(daemon.socket) as follower:
        while (event := follower.next(1)) is not None:
            if event.kind == kvlease.FollowKind.STORED:
                followed[event.key] = followed[event.parent] + (event.token_ids or ())
    del followed[None]
    pages = {text[: end + PAGE] for text in texts for end in range(0, len(text) - PAGE + 1, PAGE)}
    assert set(followed.values()) == pages
    engine.call("stop")
