"""A tenant can't tell from the time that answers take what another tenant has cached."""

from __future__ import annotations

import math
import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable

import pytest
from conftest import LAYOUT, MakeDaemon
from test_core import text

import kvlease

PROBES = 2000
N_PAGES = 128
# Standard deviations: by chance one of 10^6 figures is further off.
CHANCE = 4.9
# The page that both tenants want next has to be taken from somebody.
MEMORY = "memory = 4MiB\nextent = 2MiB"
# On a busy machine memory that was let go of is on its way back for longer than a second.
PATIENT = "when_full = queue\nmax_wait = 10s"


def deviation(times: dict[bool, list[float]]) -> float:
    """Standard deviations of the ranks of one group from chance (Mann, Whitney)."""
    rows = sorted((t, bit) for bit, group in times.items() for t in group)
    n1, n2 = len(times[True]), len(times[False])
    ranks = sum(rank for rank, (_, bit) in enumerate(rows, 1) if bit)
    expected = n1 * (n1 + n2 + 1) / 2
    return (ranks - expected) / math.sqrt(n1 * n2 * (n1 + n2 + 1) / 12)


def cache(namespace: kvlease.Namespace, keys: bytes) -> None:
    """Publishes a text; nothing of it stays pinned."""
    with namespace.lease(len(keys) // 32) as pages:
        namespace.publish(pages, keys).close()


@pytest.mark.parametrize("shm", [True, False])
def test_what_others_have_cached(make_daemon: MakeDaemon, shm: bool) -> None:
    """2,000 times the victim caches one text of two, as a coin says. The other tenant asks for the
    first of them in all ways there are. Its own cache, by the same measure, it can tell."""
    seed = int(os.environ.get("KVL_SEED", "0")) or random.randrange(1 << 32)
    print(f"KVL_SEED={seed}")
    coin = random.Random(seed)
    daemon = make_daemon(device=MEMORY, tenant=f"{PATIENT}\n[tenant b]\n{PATIENT}")
    guessed, other = text(N_PAGES), text(N_PAGES, 10_000)
    times: dict[str, dict[bool, list[float]]] = defaultdict(lambda: {True: [], False: []})

    def measure(name: str, bit: bool, call: Callable[[], object]) -> None:
        begun = time.perf_counter_ns()
        call()
        times[name][bit].append(time.perf_counter_ns() - begun)

    with (
        kvlease.connect(daemon.socket, metadata_only=True) as victim,
        kvlease.connect(daemon.socket.parents[1] / "b/sock", shm=shm, metadata_only=True) as prober,
        victim.namespace("n", LAYOUT) as theirs,
        prober.namespace("n", LAYOUT) as ours,
        prober.namespace("filler", LAYOUT) as filler,
    ):
        for _ in range(PROBES):
            bit, own = coin.random() < 0.5, coin.random() < 0.5
            theirs.invalidate()
            cache(theirs, guessed if bit else other)
            ours.invalidate()
            with theirs.session("chat" if bit else "else") as session:
                measure("miss", bit, lambda: ours.lookup(guessed).close())
                measure("session", bit, lambda: ours.session("chat").close(drop=True))
                measure("publish", bit, lambda: cache(ours, guessed))
                measure("lease", bit, lambda: filler.lease(256).close())
                session.close(drop=True)
            ours.invalidate()
            cache(ours, guessed if own else other)
            measure("own", own, lambda: ours.lookup(guessed).close())
    found = {name: deviation(groups) for name, groups in times.items()}
    medians = {
        name: [statistics.median(groups[bit]) / 1e3 for bit in (False, True)]
        for name, groups in times.items()
    }
    print(found, medians)
    assert abs(found.pop("own")) > CHANCE
    assert all(abs(off) < CHANCE for off in found.values()), found
