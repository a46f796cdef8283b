"""vLLM's KV cache events of engines whose blocks are pages, as a router hears them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kvlease_conftest as package
import msgspec
import pytest
import zmq
from contract import FULL
from models import make_adapter
from support import LIMIT, MEMORY, findable, make_prompts
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch

import kvlease

PAGE = 32
PROMPTS = make_prompts(1, 500, 7, 20, 33)
WINDOWS = {
    "num_hidden_layers": 5,
    "layer_types": [*["sliding_attention", "full_attention"] * 2, "sliding_attention"],
    "sliding_window": 64,
}


class Router:
    """What a router knows of an engine: it asks for all events from the first one on."""

    def __init__(self, folder: Path) -> None:
        self.endpoint = f"ipc://{folder}/replay"
        self.config = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"ipc://{folder}/events",
            "replay_endpoint": self.endpoint,
        }
        folder.mkdir()

    def events(self) -> list[Any]:
        """All events of the engine, in order."""
        time.sleep(0.3)  # the publisher has a thread of its own
        socket = zmq.Context.instance().socket(zmq.DEALER)
        socket.connect(self.endpoint)
        socket.send_multipart([b"", (0).to_bytes(8, "big")])
        found: list[Any] = []
        while True:
            assert socket.poll(20_000)
            *_, number, batch = socket.recv_multipart()
            if int.from_bytes(number, "big", signed=True) < 0:
                socket.close()
                return found
            events = msgspec.msgpack.decode(batch, type=KVEventBatch).events
            # vLLM tells blocks of windows that no text can begin behind, without their hashes.
            found += [each for each in events if getattr(each, "block_hashes", True)]

    def stored(self) -> dict[tuple[int, Any], tuple[int, ...]]:
        """By group and hash: the tokens of each block that is stored. A block is told behind its
        parent, and removed once."""
        known: dict[tuple[int, Any], tuple[int, ...]] = {}
        for event in self.events():
            match event:
                case BlockStored():
                    assert event.medium == "GPU" and event.block_size == PAGE
                    parent = (event.group_idx or 0, event.parent_block_hash)
                    # Of windows tokens are told of blocks that aren't stored, too.
                    if event.kv_cache_spec_kind == "full_attention":
                        assert len(event.token_ids) == PAGE * len(event.block_hashes)
                        assert event.parent_block_hash is None or parent in known
                    for i, each in enumerate(event.block_hashes):
                        known[event.group_idx or 0, each] = (
                            tuple(event.token_ids[i * PAGE : (i + 1) * PAGE])
                            if event.kv_cache_spec_kind == "full_attention"
                            else ()
                        )
                case BlockRemoved():
                    assert event.medium == "GPU"
                    for each in event.block_hashes:
                        del known[event.group_idx or 0, each]
                case AllBlocksCleared():
                    known.clear()
        return known


Routers = Callable[[], Router]


@pytest.fixture
def routers(tmp_path: Path) -> Routers:
    """routers(): another one."""
    made: list[Router] = []

    def make() -> Router:
        made.append(Router(tmp_path / f"{len(made)}"))
        return made[-1]

    return make


@pytest.mark.parametrize("layers", ["full", pytest.param("windows", marks=FULL)])
def test_as_vllm_tells_them(
    daemon: package.Daemon,
    start_engines: Any,
    settings: Any,
    models: Any,
    routers: Routers,
    layers: str,
) -> None:
    """An engine that computes all tells what vLLM without kvlease tells. One that finds pages tells
    them as well, so that blocks of both have their parents."""
    options = {"model": models(**WINDOWS)} if layers == "windows" else {}
    alone, first, second = (routers() for _ in range(3))
    engines = start_engines(
        settings(kv_events_config=alone.config, **options),
        *(settings(daemon, kv_events_config=each.config, **options) for each in (first, second)),
    )
    for engine in engines:
        engine.call("run", PROMPTS, 40)
        engine.call("run", PROMPTS[:1], 4, {"cache_salt": "mine"})
    assert first.events() == alone.events()
    assert second.stored() == alone.stored()
    engines[1].call("run", PROMPTS, 40)
    assert first.events() == alone.events()

    # A reset by one engine: the other one notices some steps later.
    for engine in (engines[0], engines[1]):
        assert engine.call("reset")
    (prompt,) = make_prompts(2, 0, 20)
    for engine in engines:
        engine.call("run", [prompt], 80)
    assert first.events() == alone.events()
    assert set(second.stored()) == set(first.stored())


def test_evicted_pages_are_removed(
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any, routers: Routers
) -> None:
    """What a router knows of an engine is what the engine finds."""
    daemon = make_daemon(device=MEMORY, tenant="limit = 8MiB")
    one, other = routers(), routers()
    first, second = start_engines(
        *(settings(daemon, kv_events_config=each.config) for each in (one, other))
    )
    texts = make_prompts(5, 100, *range(200, 1500, 100))
    for text in texts:
        for engine in (first, second):
            engine.call("run", [text], 4)
    # Steps in which all blocks are looked at.
    for engine in (first, second):
        engine.call("run", [texts[-1]], 40)
    assert any(isinstance(each, BlockRemoved) for each in one.events())
    for engine, router in ((first, one), (second, other)):
        for text in texts:
            known = set(router.stored().values())
            n_known = 0
            while tuple(text[n_known : n_known + PAGE]) in known:
                n_known += PAGE
            found = engine.call("run", [text], 1)["found"]
            assert found == [min(n_known, *findable([text], PAGE))]


@pytest.mark.parametrize("mode", ["in_place", "copy"])
def test_followers_get_token_ids(
    make_daemon: package.MakeDaemon, start_engines: Any, settings: Any, tmp_path: Path, mode: str
) -> None:
    """Routers learn the tokens of pages, with the names that tell texts of the same tokens apart;
    of names that aren't plain text they learn nothing."""
    daemon = make_daemon(device=MEMORY, tenant=f"{LIMIT}\nevents = 256MiB")
    lora = {"enable_lora": True, "max_loras": 1, "max_lora_rank": 8}
    (engine,) = start_engines(settings(daemon, kvlease={"mode": mode}, **lora))
    name, *_ = adapter = make_adapter(tmp_path / "adapter", 1)
    engine.call("run", PROMPTS, 4)
    # With copies nothing is stored of the request that loads an adapter.
    engine.call("run", PROMPTS[:1], 4, {"adapter": adapter, "cache_salt": "loads it"})
    named: list[tuple[str | None, str | None]] = [(None, "mine"), (name, None), (name, "mine")]
    for lora_name, salt in named:
        options = {"cache_salt": salt} if salt else {}
        options |= {"adapter": adapter} if lora_name else {}
        engine.call("run", PROMPTS[:1], 4, options)
    engine.call("run", PROMPTS[:1], 4, {"cache_salt": "\ud800"})
    engine.call("run", PROMPTS[:1], 4, {"cache_salt": "\0"})
    texts: dict[bytes, tuple[Any, tuple[int, ...]]] = {}
    n_unknown = 0
    with kvlease.Follower(daemon.socket) as follower:
        while (event := follower.next(2)) is not None:
            if event.kind != kvlease.FollowKind.STORED:
                continue
            n_unknown += event.token_ids is None
            if event.key is None or event.token_ids is None:
                continue
            names, before = (event.lora_name, event.cache_salt), ()
            if event.parent is not None:
                names, before = texts[event.parent]
            texts[event.key] = names, before + event.token_ids
    wanted = {
        (names, tuple(prompt[:end]))
        for prompts, of_prompts in ((PROMPTS, [(None, None)]), (PROMPTS[:1], named))
        for prompt in prompts
        for names in of_prompts
        for end in range(PAGE, len(prompt) + 1, PAGE)
    }
    assert wanted <= set(texts.values())
    assert n_unknown == 2 * (len(PROMPTS[0]) // PAGE)
