"""A network namespace for the tests: the indexer listens at all addresses, without a password."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

CLONE_NEWNET = 0x40000000


@pytest.fixture(scope="session", autouse=True)
def network() -> None:
    """Leaves the host's network for one with a loopback alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) < 0:
        pytest.skip(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
