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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import kvlease

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "engines"))

from support import Engine, make_prompts  # noqa: E402

PAGE = 16
MEMORY = "memory = 2GiB\nextent = 64MiB"
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


@dataclass(frozen=True)
class Part:
    """What can be tried with a kvleased of its own."""

    run: Callable[[Path], dict[str, Any]]
    """Called with the socket of the tenant. Facts, or an exception."""
    device: str
    """Of kvleased: a UUID, 'host', or the name of a device that spans GPUs."""
    section: str = MEMORY
    """Options of the device."""
    why_not: str = ""
    """Why it can't be tried here."""


@contextlib.contextmanager
def daemon(build: Path, directory: Path, device: str, section: str) -> Iterator[Path]:
    """A private kvleased with memory of the device; its tenant's socket."""
    for name in ("run", "state"):
        (directory / name).mkdir()
    (directory / "conf").write_text(
        f"[daemon]\ndevices = {device}\nruntime_dir = {directory}/run\n"
        f"state_dir = {directory}/state\n[device {device}]\n{section}\n[tenant a]\nlimit = 2GiB\n"
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
        # vLLM says of each request how many tokens were found.
        n_found = sum(runs[-1].get("found", ())) or engines[-1].call("stats")["hit_tokens"]
        n_asked = sum(map(len, prompts))
        for engine in engines[1:]:
            engine.call("stop")
        assert n_found > n_asked / 2, (n_found, n_asked)
        return {
            "seconds": [round(run["seconds"], 3) for run in runs],
            "tokens_are_equal": all(run["tokens"] == runs[0]["tokens"] for run in runs),
            "hit_tokens": n_found,
            "asked_tokens": n_asked,
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


def on_vllm(
    path: Path, prompts: Any, kvlease_settings: dict[str, Any], family: str = "llama", **more: Any
) -> dict[str, Any]:
    """Engines of vLLM with CUDA graphs. Each is one process, but for workers of several ranks.

    family: of the model. more: options of vLLM, for all three engines.
    """
    needs("vllm")
    environment = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    options: dict[str, Any] = {
        "dtype": "bfloat16",
        "enforce_eager": False,
        "max_num_batched_tokens": 2048,
        "gpu_memory_utilization": 0.1,
        "compilation_config": {},
        # Recurrent states need blocks of their own size, which vLLM chooses.
        "block_size": None,
        "enable_prefix_caching": True,
        **more,
    }
    with tempfile.TemporaryDirectory(prefix="kvl-model-") as folder:
        importlib.import_module("models").make_for_gpu(Path(folder), family)
        on = {"kvlease": {"socket": str(path), **kvlease_settings}}
        each = [{"model": folder, "vllm": options} | more for more in ({}, on, on)]
        return share("vllm", each, prompts, 24, environment)


def uuid_of(number: int) -> str:
    """Of a GPU, as kvleased has it."""
    return f"GPU-{torch.cuda.get_device_properties(number).uuid}"


def vllm_parts(device: str, prompts: Any, quick: bool) -> dict[str, Part]:
    """Ways in which vLLM shares on GPUs."""

    def part(where: dict[str, Any], *, on: str = device, **options: Any) -> Part:
        return Part(lambda path: on_vllm(path, prompts, where, **options), on)

    in_place = {"mode": "in_place", "device": device}
    found = {"vllm": part(in_place)}
    if quick:
        return found
    guess = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
    found |= {
        "vllm-copy": part({"mode": "copy"}, on="host"),
        "vllm-windows": part(in_place, family="gemma3_text"),
        "vllm-states": part(in_place, family="qwen3_next"),
        "vllm-fp8": part(in_place, kv_cache_dtype="fp8"),
        "vllm-ngram": part(in_place, speculative_config=guess),
    }
    two = torch.cuda.device_count() > 1
    ranks = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
    spans = part({"mode": "in_place", "device": "tp2"}, on="tp2", **ranks)
    members = ", ".join(map(uuid_of, range(2))) if two else ""
    found["vllm-tp2"] = replace(
        spans,
        section=f"members = {members}\n{MEMORY}",
        why_not="" if two else "torch finds one GPU, and two ranks take two",
    )
    return found


def parts(device: str, quick: bool) -> dict[str, Part]:
    """What can be tried, by name."""
    few = make_prompts(1, 1000, 7, 20, 33)
    many = {"max_batch_tokens": 2048, "num_blocks": 1200}

    def of_transformers(prompts: Any = few, n_tokens: int = 24, **settings: Any) -> Part:
        return Part(
            lambda path: on_transformers(path, device, prompts, n_tokens, **settings), device
        )

    found = {
        "tensors": Part(lambda path: tensors(path, device), device),
        "transformers": of_transformers(),
        **vllm_parts(device, few, quick),
    }
    if not quick:
        found["transformers-graphs"] = of_transformers(batching={"use_cuda_graph": True})
        # One token: the seconds are those of the prompt.
        found["transformers-large"] = of_transformers(
            make_prompts(3, 8192, 20), 1, model=LARGE, dtype="bfloat16", batching=many
        )
    return found


def try_part(build: Path, part: Part) -> tuple[str, dict[str, Any]]:
    """passed, skipped or failed, and what there is to say of it."""
    if part.why_not:
        return "skipped", {"why": part.why_not}
    with tempfile.TemporaryDirectory(prefix="kvl-") as top:
        try:
            with daemon(build, Path(top), part.device, part.section) as path:
                facts = part.run(path)
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
    wanted = parts(uuid_of(0), arguments.quick)
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
        outcome, facts = try_part(arguments.build, wanted[name])
        outcomes.add(outcome)
        report["parts"][name] = {"outcome": outcome} | facts
        print(f"{outcome} {name}: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    return 1 if "failed" in outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
