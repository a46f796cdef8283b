"""The pool of pages, without an engine."""

from __future__ import annotations

import kvlease_conftest as package
import torch

import kvlease
from kvlease._verify import Verifier
from kvlease.transformers.options import Options
from kvlease.transformers.pool import Pool


def test_counts_nothing_where_nothing_can_be_asked(make_daemon: package.MakeDaemon) -> None:
    """Over the socket, which is gone by then: the engine goes on."""
    keys = package.LAYOUT.keys(list(range(64)))
    connection = kvlease.connect(make_daemon().socket, shm=False)
    namespace = connection.namespace("n", package.LAYOUT)
    verifier = Verifier(0, namespace, torch.float32, b"", bytes)
    pool = Pool(8, namespace, Options(), verifier, lambda own, other: False)
    assert pool.count_cached(keys) == 0
    with namespace.lease(4) as pages, namespace.publish(pages, keys):
        assert pool.count_cached(keys) == 4
    connection.close()
    assert pool.count_cached(keys) == 0
