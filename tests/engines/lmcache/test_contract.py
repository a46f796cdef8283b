"""LMCache with kvlease behind it keeps what every adapter keeps."""

from __future__ import annotations

import pytest
from contract import Contract, Driver

# Of worker.py, which tests don't import: it is the engine's process.
CHUNK_TOKENS = 16
PAGE_BYTES = 512 << 10


@pytest.fixture(scope="session")
def driver() -> Driver:
    """LMCache's server."""
    return Driver(
        page=CHUNK_TOKENS,
        settings={},
        options={"page_bytes": PAGE_BYTES, "pin_seconds": 1.0},
        others={
            "model": {"model": "another"},
            "rank": {"kv_rank": 0x02010201},
            "group": {"group": 1},
            "salt": {"salt": "of others"},
            "version": {"kvlease": {"version": "2"}},
            "pages": {"kvlease": {"page_bytes": 2 * PAGE_BYTES}},
        },
    )


class TestContract(Contract):
    """All of it but verify, which LMCache has no place for."""

    test_mismatch = None
