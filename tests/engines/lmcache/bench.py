"""Measures LMCache's L2 adapters with `lmcache bench l2`, kvlease among them: a table.

Environment: as of the tests (PYTHONPATH, KVL_BUILD). Needs a redis-server. kvlease stores into
memory that kvleased clears for it, and, in a row of its own, into a full tenant's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "client/python/tests"))

import conftest as package  # noqa: E402

from kvlease.lmcache.objects import Name  # noqa: E402
from kvlease.lmcache.options import Options  # noqa: E402
from kvlease.lmcache.store import Store  # noqa: E402

ROUNDS = 20
# Bytes of an object, objects of a request.
SIZES = [(256 << 10, 32), (8 << 20, 4)]
ALL = ("store", "lookup", "load")
MIB = 1 << 20


@contextlib.contextmanager
def kvleased(size: int, count: int, is_full: bool) -> Iterator[dict[str, Any]]:
    """A daemon with room for all objects of a run. is_full: it has to evict others for it."""
    limit = 2 * size * count * (ROUNDS + 1) // MIB
    with tempfile.TemporaryDirectory(prefix="kvl-") as top:
        device = f"memory = {2 * limit}MiB\nextent = 2MiB"
        daemon = package.Daemon(Path(top), False, device, f"limit = {limit}MiB")
        daemon.start()
        try:
            params = {"socket": str(daemon.socket)}
            store = Store(Options.of(params))
            names = [Name("filling", 0, 1, str(i)) for i in range(limit)]
            store.store(names, [bytes(MIB)] * limit)
            if not is_full:
                store.delete(names)
            store.close()
            yield {
                "type": "native_plugin",
                "module_path": "kvlease.lmcache",
                "class_name": "Client",
                "adapter_params": params,
            }
        finally:
            daemon.stop()


@contextlib.contextmanager
def files(kind: str, folder: str | None) -> Iterator[dict[str, Any]]:
    """LMCache's adapters for files."""
    with tempfile.TemporaryDirectory(prefix="kvl-", dir=folder) as top:
        yield {"type": kind, "base_path": top}


@contextlib.contextmanager
def redis() -> Iterator[dict[str, Any]]:
    """LMCache's adapter for Redis."""
    with tempfile.TemporaryDirectory(prefix="kvl-") as top:
        program = package.find_redis(top)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [program, "--port", str(port), "--save", "", "--dir", top]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                package.await_redis(process, port)
                yield {"type": "resp", "host": "127.0.0.1", "port": port}
            finally:
                process.kill()


def measure(
    adapter: dict[str, Any], size: int, count: int, operations: tuple[str, ...]
) -> list[float]:
    """Milliseconds of a request of each of the operations, the median of ROUNDS."""
    command = [sys.executable, "-c", "from lmcache.cli.main import main; main()", "bench", "l2"]
    command += ["--l2-adapter", json.dumps(adapter), "--rounds", str(ROUNDS), "--no-skip-verify"]
    command += ["--num-keys", str(count), "--data-size-kb", str(size >> 10)]
    command += ["--lookup-max-hit-rate", "1", "--l1-align-bytes", "4096"]
    if len(operations) == 1:
        command += ["--only", *operations]
    environment = os.environ | {"LMCACHE_TRACK_USAGE": "false"}
    said = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ).stdout.decode()
    assert len(operations) == 1 or f"All {count} keys data verified OK" in said, said
    done = re.findall(r"Total success: +(\d+)", said)
    assert done == [str(ROUNDS * count)] * len(operations), said
    return [float(each) for each in re.findall(r"Duration p50 \(ms\): +([\d.]+)", said)]


def main() -> None:
    """Prints the table."""
    print("| adapter | object | store | look up | load |\n|---|---|---|---|---|")
    for size, count in SIZES:
        adapters = {
            "kvlease": kvleased(size, count, False),
            "kvlease, full": kvleased(size, count, True),
            "fs_native, tmpfs": files("fs_native", "/dev/shm"),
            "fs_native, disk": files("fs_native", None),
            "fs, disk": files("fs", None),
            "resp (Redis)": redis(),
        }
        for name, running in adapters.items():
            with running as adapter:
                times = measure(adapter, size, count, ALL[:1] if "full" in name else ALL)
            cells = " | ".join([f"{each:.2f} ms" for each in times] + [""] * (3 - len(times)))
            print(f"| {name} | {count} of {size >> 10} KiB | {cells} |", flush=True)


if __name__ == "__main__":
    main()
