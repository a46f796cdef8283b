"""Connections of an engine to kvleased: one of each worker, and one of the scheduler."""

from __future__ import annotations

import secrets

import kvlease
from kvlease.vllm.identity import Options
from kvlease.vllm.weights import Watch, gather


def connect_worker(options: Options, watch: Watch, model: str) -> kvlease.Connection:
    """Of this rank, in the group of the engine's ranks. All ranks call this at the same point, and
    raise where one of them can't connect.

    model: a name for people, where the user gives none.
    """
    # Only the engine's ranks know the secret, and each start of an engine has another one.
    secret = gather(secrets.token_bytes(32))[0]
    rank = f" rank {watch.rank}" if watch.n_ranks > 1 else ""
    connection: kvlease.Connection | None = None
    failure: kvlease.Error | None = None
    try:
        connection = kvlease.connect(
            options.socket,
            client_name=_name(options, model, rank),
            group_secret=secret,
            timeout=None,
            reconnect=options.reconnect,
        )
    except kvlease.Error as error:
        failure = error
    # Ranks that went on alone would wait for the others for ever.
    others = [why for why in gather(failure and str(failure)) if why]
    if connection is not None and not others:
        return connection
    if connection is not None:
        connection.close()
    raise failure or ValueError(f"another rank of the engine can't connect: {others[0]}")


def connect_scheduler(options: Options, group_token: bytes, model: str) -> kvlease.Connection:
    """Of the scheduler, in the group of the ranks, whose group_token a worker's connection has. It
    maps pages where it compares them."""
    return kvlease.connect(
        options.socket,
        client_name=_name(options, model, " scheduler"),
        group_token=group_token,
        metadata_only=not options.verify,
        timeout=None,
        reconnect=options.reconnect,
    )


def _name(options: Options, model: str, part: str) -> str:
    """What kvleasectl shows of a part of the engine."""
    end = f" dp {options.dp_rank}{part}" if options.dp_rank else part
    return f"{(options.client_name or f'vllm {model}')[: 64 - len(end)]}{end}"
