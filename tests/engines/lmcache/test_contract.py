"""LMCache with kvlease behind it keeps what every adapter keeps."""

from __future__ import annotations

import pytest
from contract import Contract, Driver

# Of worker.py, which tests don't import: it is the engine's process.
CHUNK_TOKENS = 16
PAGE_BYTES = 512 << 10


@pytest.fixture(scope="session", params=["server", "in process"])
def driver(request: pytest.FixtureRequest) -> Driver:
    """LMCache's server with the native plug-in, and its engine with the storage plug-in."""
    kinds = {"server": {"group": {"group": 1}}, "in process": {"dtype": {"dtype": "float16"}}}
    return Driver(
        page=CHUNK_TOKENS,
        settings={"kind": request.param},
        options={"page_bytes": PAGE_BYTES, "pin_seconds": 1.0},
        others={
            "model": {"model": "another"},
            "rank": {"kv_rank": 0x02010201},
            "salt": {"salt": "of others"},
            "version": {"kvlease": {"version": "2"}},
            "pages": {"kvlease": {"page_bytes": 2 * PAGE_BYTES}},
            **kinds[request.param],
        },
        most_cost=None,
    )


class TestContract(Contract):
    """All of it but verify, which LMCache has no place for."""

    test_mismatch = None
