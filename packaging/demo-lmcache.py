"""How long a vLLM beside an LMCache server takes, in seconds: demo.sh --engine lmcache runs it.

demo-lmcache.py SOCKET FOLDER: of kvleased; for the model and logs. The first run of all is vLLM
alone, whose tokens all others must have.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VLLM = runpy.run_path(str(Path(__file__).with_name("demo-vllm.py")))

import serving  # noqa: E402

CHUNK = 256
SECONDS = 60
PROMPTS = VLLM["PROMPTS"]
N_CHUNKS = sum(len(prompt) // CHUNK for prompt in PROMPTS)


def await_stores(lmcache: serving.Server) -> None:
    """LMCache stores later than vLLM answers."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        with urllib.request.urlopen(f"{lmcache.url}/status") as response:
            status = json.load(response)["storage_manager"]
        controller = status["store_controller"]
        n_waiting = controller["pending_keys_count"] + controller["in_flight_task_count"]
        if status["l1_manager"]["total_object_count"] == N_CHUNKS and not n_waiting:
            return
        time.sleep(0.1)
    raise RuntimeError("LMCache doesn't end its stores")


@contextlib.contextmanager
def servers(demo: Any, name: str, *options: str) -> Iterator[list[serving.Server]]:
    """A vLLM with an LMCache server of its own, and this one. Both are killed."""
    log, port = demo.folder / "lmcache.log", serving.find_port()
    size = ("--l1-size-gb", "0.25", "--eviction-policy", "LRU")
    lmcache = serving.serve_lmcache(log, port, *size, *options)
    try:
        lmcache.wait()
        to_it = serving.transfer("LMCacheMPConnector", **serving.lmcache(port))
        with demo.servers(name, 1, *to_it) as (vllm,):
            yield [vllm, lmcache]
    finally:
        lmcache.kill()


def main() -> int:
    """1 where tokens differ, or others are found than should be."""
    socket, folder = sys.argv[1], Path(sys.argv[2])
    os.environ["LMCACHE_TRACK_USAGE"] = "false"  # it would send statistics to its makers
    params = {"socket": socket}
    adapter = {"type": "native_plugin", "module_path": "kvlease.lmcache", "class_name": "Client"}
    pages = ("--l2-adapter", json.dumps(adapter | {"adapter_params": params}))
    demo = VLLM["Demo"](folder)
    with demo.servers("vLLM as it is", 1) as (alone,):
        demo.first_tokens("vLLM alone: cold", alone.ask, PROMPTS)
    demo.page = CHUNK
    with servers(demo, "vLLM with LMCache") as (vllm, lmcache):
        demo.first_tokens("LMCache alone: cold", vllm.ask, PROMPTS)
        await_stores(lmcache)
    with servers(demo, "both again") as (vllm, _):
        demo.first_tokens("LMCache alone: both killed, started again, cold", vllm.ask, PROMPTS)
    with servers(demo, "vLLM with LMCache on kvlease", *pages) as (vllm, lmcache):
        demo.first_tokens("LMCache on kvlease: cold", vllm.ask, PROMPTS)
        await_stores(lmcache)
    with servers(demo, "both again", *pages) as (vllm, _):
        demo.first_tokens("LMCache on kvlease: both killed, started again", vllm.ask, PROMPTS)
    print()
    demo.show()
    return 0 if demo.is_as_expected else 1


if __name__ == "__main__":
    # So that the servers end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"demo: {error}")
