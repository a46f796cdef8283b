"""The package by itself: with the Python that the virtual environment was made from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from conftest import Daemon

import kvlease

CODE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import kvlease, kvlease.aio, kvlease.__main__
layout = kvlease.Layout("alone", kvlease.DType.F16, 1, 1, 64, 16, 4096)
with kvlease.connect(sys.argv[2]) as connection, connection.namespace("alone", layout) as ns:
    keys = layout.keys(range(16))
    with ns.lease(1) as pages:
        with pages.page(0) as view, memoryview(view) as memory:
            memory[:5] = b"alone"
        ns.publish(pages, keys).close()
    with ns.lookup(keys) as found:
        read = found.read(0, 5).decode()
    ns.invalidate()
strangers = [m for m in sys.modules
             if m.split(".")[0] not in sys.stdlib_module_names | {"__main__", "kvlease"}]
print(json.dumps([read, strangers, sys.prefix, kvlease.__file__]))
"""


def test_without_a_virtual_environment(shared_daemon: Daemon, tmp_path: Path) -> None:
    """Neither site-packages nor the environment (-I -S): the standard library alone."""
    package = Path(kvlease.__file__).parent
    (tmp_path / "kvlease").symlink_to(package)
    python = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run(
        [python, "-I", "-S", "-W", "error", "-c", CODE, tmp_path, shared_daemon.socket],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    read, strangers, prefix, where = json.loads(done.stdout)
    assert (read, strangers) == ("alone", [])
    assert prefix == sys.base_prefix
    assert where == str(tmp_path / "kvlease/__init__.py")


def test_as_a_program_without_a_virtual_environment(shared_daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "kvlease").symlink_to(Path(kvlease.__file__).parent)
    done = subprocess.run(
        [getattr(sys, "_base_executable", sys.executable), "-S", "-m", "kvlease"],
        env=os.environ | {"PYTHONPATH": str(tmp_path), "KVLEASE_SOCKET": str(shared_daemon.socket)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "reachable  yes" in done.stdout
