"""Followers of the cache."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import LAYOUT, TREE, MakeDaemon

import kvlease

PAGE = LAYOUT.page_tokens


def take(follower: kvlease.Follower) -> list[kvlease.FollowEvent]:
    events: list[kvlease.FollowEvent] = []
    # A new namespace is noticed within a second.
    while (event := follower.next(0.1 if events else 5)) is not None:
        events.append(event)
    return events


def test_follows(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(tenant="events = 64MiB")
    keys = b"".join(bytes([i]) * 32 for i in (1, 2, 3))
    ids = list(range(2 * PAGE + 5))
    with kvlease.connect(daemon.socket) as connection, kvlease.Follower(daemon.socket) as follower:
        namespace = connection.namespace("followed", LAYOUT)
        assert namespace.info.takes_token_ids
        with namespace.lease(3) as pages:
            with pytest.raises(ValueError, match="3 token ids for"):
                namespace.publish(pages, keys, last_tokens=5, token_ids=[1, 2, 3])
            namespace.publish(
                pages, keys, last_tokens=5, token_ids=ids, tag=7, lora_name="sql", cache_salt="é"
            ).close()
        events = take(follower)
        kinds = kvlease.FollowKind
        assert [e.kind for e in events if e.kind != kinds.STORED] == [
            kinds.NAMESPACE,
            kinds.RESET,
            kinds.SYNCED,
        ]
        assert events[0].namespace.name == "followed"
        assert events[0].namespace.page_tokens == PAGE
        stored = [e for e in events if e.kind == kinds.STORED]
        assert b"".join(e.key or b"" for e in stored) == keys
        assert [e.parent for e in stored] == [None, keys[:32], keys[32:64]]
        assert [t for e in stored for t in e.token_ids or ()] == ids
        assert [(e.depth, e.tag, e.tier) for e in stored] == [(i, 7, 0) for i in (1, 2, 3)]
        assert [e.lora_name for e in stored] == ["sql", None, None]
        assert [e.cache_salt for e in stored] == ["é", None, None]
        namespace.invalidate(keys[32:64])
        assert [(e.kind, e.key) for e in take(follower)] == [
            (kinds.REMOVED, keys[64:]),
            (kinds.REMOVED, keys[32:64]),
        ]
        with namespace.lease(1) as pages:
            with pytest.raises(TypeError):
                namespace.publish(pages, keys[32:64], lora_name=1)  # type: ignore[arg-type]
            namespace.publish(
                pages, keys[32:64], token_ids=ids[:PAGE], lora_name="l" * 39, cache_salt="s" * 40
            ).close()
        (longer,) = take(follower)
        assert longer.kind == kinds.STORED and longer.token_ids is None and not longer.lora_name
        namespace.invalidate(keys[32:64])
        take(follower)
        follower.reset()
        assert [e.kind for e in take(follower)] == [kinds.RESET, kinds.STORED, kinds.SYNCED]
        assert follower.is_connected
    with pytest.raises(kvlease.Closed):
        follower.next()


def test_one_tenant(make_daemon: MakeDaemon) -> None:
    """On monitor.sock."""
    daemon = make_daemon(tenant="events = 64MiB\n[tenant b]\nevents = 64MiB")
    run = daemon.directory / "run"
    with (
        kvlease.connect(daemon.socket) as connection,
        kvlease.connect(run / "t/b/sock") as other,
        connection.namespace("of-a", LAYOUT),
        other.namespace("of-b", LAYOUT),
        kvlease.Follower(run / "monitor.sock", tenant="b") as follower,
    ):
        assert {e.namespace.name for e in take(follower)} == {"of-b"}


def test_routing_page(make_daemon: MakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    """The program of docs/operate/routing.md prints what the page shows."""
    daemon = make_daemon(tenant="events = 64MiB")
    with kvlease.connect(daemon.socket) as connection:
        namespace = connection.namespace("hello-python", LAYOUT)
        with namespace.lease(3) as pages:
            namespace.publish(pages, b"".join(bytes([i]) * 32 for i in (1, 2, 3))).close()
        page = (TREE / "docs/operate/routing.md").read_text().split("## Your own router")[1]
        (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        exec(program.replace("/run/kvlease/t/prod/sock", str(daemon.socket)), {})
    assert f"```\n{capsys.readouterr().out}```" in page


def test_unreachable(tmp_path: Path) -> None:
    with pytest.raises(kvlease.Unreachable, match="no kvleased listens"):
        kvlease.Follower(tmp_path / "none")
