"""Engines on a GPU: pages as tensors of torch, and transformers and vLLM on them.

    python engine.py --build BUNDLE_OR_BUILD_DIR [--out FILE] [--quick] [PART...]

Needs an NVIDIA GPU that is idle, torch with CUDA and the wheel of packaging/wheel.sh; what engine
isn't there in a release that kvlease takes is left out by name. Starts a private kvleased, of the
bundle or of the build directory, with memory of the GPU, and prints what it saw, as JSON. Exit
status: 0 all as it should be, 1 not, 77 there is no GPU that torch can use.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import kvlease

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "engines"))

from support import Engine, make_prompts  # noqa: E402

PAGE = 16
START_SECONDS = 60
LAYOUT = kvlease.Layout(
    model="tensors",
    dtype=kvlease.DType.F16,
    n_layers=2,
    n_kv_heads=2,
    head_size=64,
    page_tokens=PAGE,
    plane_page_bytes=65536,
)
# About a billion weights, so that a GPU has something to compute.
LARGE = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 16384,
    "initializer_range": 0.02,
}


def program(build: Path, name: str, built: str) -> str:
    """A program of the bundle, or of a build directory."""
    bundled = build / "bin" / name
    return str(bundled if bundled.exists() else build / built)


@contextlib.contextmanager
def daemon(build: Path, directory: Path, device: str) -> Iterator[Path]:
    """A private kvleased with memory of the GPU; its tenant's socket."""
    for name in ("run", "state"):
        (directory / name).mkdir()
    (directory / "conf").write_text(
        f"[daemon]\ndevices = {device}\nruntime_dir = {directory}/run\n"
        f"state_dir = {directory}/state\n[device {device}]\nmemory = 2GiB\nextent = 64MiB\n"
        "[tenant a]\nlimit = 2GiB\n"
    )
    libraries = os.environ | {"NOTIFY_SOCKET": str(directory / "notify")}
    if (build / "lib").exists():
        libraries["LD_LIBRARY_PATH"] = f"{build}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}"
    command = [program(build, "kvleased", "daemon/server/kvleased"), "--config"]
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready,
        (directory / "log").open("ab") as log,
    ):
        ready.bind(str(directory / "notify"))
        ready.settimeout(START_SECONDS)
        process = subprocess.Popen(
            [*command, str(directory / "conf")], env=libraries, stdout=log, stderr=log
        )
        try:
            while b"READY=1" not in ready.recv(4096):
                pass
            yield directory / "run/t/a/sock"
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def reader(path: str, device: str) -> None:
    """In a process of its own: finds what the parent published, and says whether it is right."""
    keys = LAYOUT.keys(range(4 * PAGE))
    with (
        kvlease.connect(path) as connection,
        connection.namespace("tensors", layout=LAYOUT, device=device) as namespace,
        namespace.lookup(keys) as found,
    ):
        views = [found.page(i, dtype="f16") for i in range(len(found))]
        right = [
            bool((torch.from_dlpack(view).cpu() == float(i + 1)).all())
            for i, view in enumerate(views)
        ]
        for view in views:
            view.release()
        print(json.dumps(right))


def tensors(path: Path, device: str) -> dict[str, Any]:
    """Pages are written by kernels of torch here and read by those of another process."""
    keys = LAYOUT.keys(range(4 * PAGE))
    with (
        kvlease.connect(path) as connection,
        connection.namespace("tensors", layout=LAYOUT, device=device) as namespace,
        namespace.lease(4) as pages,
    ):
        arena = namespace.arena(writable=True, dtype="f16")
        facts: dict[str, Any] = {
            "interface": {key: str(value) for key, value in arena.__cuda_array_interface__.items()},
            "dlpack_device": list(arena.__dlpack_device__()),
        }
        by_dlpack = torch.from_dlpack(arena)
        by_interface = torch.as_tensor(arena, device="cuda")
        assert by_interface.data_ptr() == by_dlpack.data_ptr() == arena.address
        facts["torch_device"] = str(by_dlpack.device)
        for i in range(len(pages)):
            view = pages.page(i, dtype="f16")
            torch.from_dlpack(view).fill_(i + 1)
            view.release()
        # A graph that was captured over the arena writes what it is told at each replay.
        page = by_dlpack.view(namespace.info.tiers[0].n_pages, -1)[pages[0]]
        number = torch.zeros((), device="cuda", dtype=torch.float16)
        page.copy_(number.expand_as(page))
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            page.copy_(number.expand_as(page))
        number.fill_(1)
        graph.replay()
        torch.cuda.synchronize()
        namespace.publish(pages, keys).close()
        command = [sys.executable, __file__, "--read", str(path), "--device", device]
        right = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        facts["pages_right"] = right
        assert right == [True] * 4, right
        del graph, page, by_dlpack, by_interface
        arena.release()
        return facts


class Skipped(Exception):
    """A part can't be tried here, and why."""


def needs(package: str) -> None:
    """Skips the part where a package isn't installed."""
    if importlib.util.find_spec(package) is None:
        raise Skipped(f"{package} isn't installed for this Python")


def share(
    package: str,
    settings: list[dict[str, Any]],
    prompts: Any,
    n_tokens: int,
    environment: dict[str, str] | None = None,
) -> dict[str, Any]:
    """One engine without kvlease, one that computes, and one that finds what it computed."""
    needs(package)
    worker = HERE.parent / "engines" / package / "worker.py"
    engines = [Engine(worker, each, environment) for each in settings]
    try:
        for engine in engines:
            ready = engine.receive()
            assert ready == "ready", ready
        # The first request of a process pays for its kernels.
        (warm_up,) = make_prompts(7, 0, 100)
        runs = []
        for engine in engines:
            answer = engine.call("run", [warm_up], 4)
            assert "tokens" in answer, answer
            runs.append(engine.call("run", prompts, n_tokens))
            assert "tokens" in runs[-1], runs[-1]
        stats = engines[-1].call("stats")
        for engine in engines[1:]:
            engine.call("stop")
        assert stats["hit_tokens"] > stats["asked_tokens"] / 2, stats
        return {
            "seconds": [round(run["seconds"], 3) for run in runs],
            "tokens_are_equal": all(run["tokens"] == runs[0]["tokens"] for run in runs),
            "hit_tokens": stats["hit_tokens"],
            "asked_tokens": stats["asked_tokens"],
        }
    finally:
        for engine in engines:
            engine.kill()


def on_transformers(
    path: Path, device: str, prompts: Any, n_tokens: int, **settings: Any
) -> dict[str, Any]:
    """Engines of transformers."""
    settings["batching"] = {"use_async_batching": False} | settings.get("batching", {})
    on = {"kvlease": {"socket": str(path), "device": device}}
    each = [{"device": "cuda"} | settings | more for more in ({}, on, on)]
    return share("transformers", each, prompts, n_tokens)


def on_vllm(path: Path, device: str, prompts: Any, n_tokens: int) -> dict[str, Any]:
    """Engines of vLLM, each in one process, with CUDA graphs."""
    needs("vllm")
    environment = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    options = {
        "dtype": "bfloat16",
        "enforce_eager": False,
        "max_num_batched_tokens": 2048,
        "gpu_memory_utilization": 0.1,
        "compilation_config": {},
    }
    with tempfile.TemporaryDirectory(prefix="kvl-model-") as folder:
        # Backends of a GPU take heads of 64 numbers and more.
        importlib.import_module("models").make_llama(Path(folder), hidden_size=256)
        on = {"kvlease": {"socket": str(path), "device": device, "mode": "in_place"}}
        each = [{"model": folder, "vllm": options} | more for more in ({}, on, on)]
        return share("vllm", each, prompts, n_tokens, environment)


def parts(device: str, quick: bool) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """What can be tried, by name; each is called with the socket of a kvleased of its own."""
    few = make_prompts(1, 1000, 7, 20, 33)
    many = {"max_batch_tokens": 2048, "num_blocks": 1200}
    found: dict[str, Callable[[Path], dict[str, Any]]] = {
        "tensors": lambda path: tensors(path, device),
        "transformers": lambda path: on_transformers(path, device, few, 24),
        "vllm": lambda path: on_vllm(path, device, few, 24),
    }
    if not quick:
        found["transformers-graphs"] = lambda path: on_transformers(
            path, device, few, 24, batching={"use_cuda_graph": True}
        )
        # One token: the seconds are those of the prompt.
        found["transformers-large"] = lambda path: on_transformers(
            path,
            device,
            make_prompts(3, 8192, 20),
            1,
            model=LARGE,
            dtype="bfloat16",
            batching=many,
        )
    return found


def try_part(
    build: Path, device: str, part: Callable[[Path], dict[str, Any]]
) -> tuple[str, dict[str, Any]]:
    """passed, skipped or failed, and what there is to say of it."""
    with tempfile.TemporaryDirectory(prefix="kvl-") as top:
        try:
            with daemon(build, Path(top), device) as path:
                facts = part(path)
            return "passed" if facts.get("tokens_are_equal", True) else "failed", facts
        except Skipped as why:
            return "skipped", {"why": str(why)}
        except Exception:
            log = (Path(top) / "log").read_text(errors="replace")
            return "failed", {"why": traceback.format_exc(), "log_of_kvleased": log[-4000:]}


def main() -> int:
    """Tries everything, each part for itself."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", metavar="PART", help="these alone; default: all")
    parser.add_argument("--build", type=Path, help="folder of the bundle, or build directory")
    parser.add_argument("--out", type=Path, help="the JSON goes there, too, after each part")
    parser.add_argument("--quick", action="store_true", help="small models alone")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--device", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        reader(arguments.read, arguments.device)
        return 0
    if not torch.cuda.is_available():
        print("engine.py: skipped: torch finds no GPU", file=sys.stderr)
        return 77
    device = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    wanted = parts(device, arguments.quick)
    if unknown := set(arguments.part) - set(wanted):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(wanted)}")
    if arguments.build is None:
        parser.error("--build names the bundle, or the build directory")
    report: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "kvlease": kvlease.__version__,
        "parts": {},
    }
    outcomes = set()
    for name in arguments.part or wanted:
        started = time.monotonic()
        outcome, facts = try_part(arguments.build, device, wanted[name])
        outcomes.add(outcome)
        report["parts"][name] = {"outcome": outcome} | facts
        print(f"{outcome} {name}: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    return 1 if "failed" in outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
