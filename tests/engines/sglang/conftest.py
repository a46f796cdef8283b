"""SGLang's modules for the tests' process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support import forks

sys.path.insert(0, str(Path(__file__).resolve().parent))
# Of each engine. Threads that wait for each other on a busy machine take a second for a token.
os.environ.setdefault("OMP_NUM_THREADS", "1")
forks.set_forkserver_preload(
    ["kvlease.sglang", "sglang.srt.entrypoints.engine", "sglang.srt.models.registry"]
)

import pools  # noqa: E402


@pytest.fixture
def runner() -> Any:
    """The model of this process."""
    return pools.make_runner()
