"""
The rooms of the daemon's core, its server, its client of other hosts' stores and the library, and their one-way doors
(docs/ARCHITECTURE.md, "Map of the source"):
check-edges.py looks at includes with them, check-calls.py at calls.

A tree of rooms is a folder; its rooms are folders in it. They are listed from the lowest to the highest: a room may use
itself and those before it. Files in the tree's own folder are above all of its rooms.
"""
from __future__ import annotations

import pathlib
import sys

ROOMS: dict[str, list[str]] = {
    "daemon/core": [
        "ground", "objects", "quota", "records", "memory", "catalog", "clients", "moves", "journal", "sessions", "reclaim", "tiers",
        "upkeep", "requests", "remote", "exports", "exchange", "lifetimes", "recovery",
    ],
    "daemon/server": [
        "system", "settings", "directories", "wire", "objects", "keeping", "sockets", "peers", "waits", "services", "tenants", "handlers",
        "administration",
    ],
    "daemon/remote": ["protocol", "endpoint", "ask", "store"],
    "client/lib": [
        "connection", "shared", "objects", "keys", "mapping", "calls", "rings", "pages", "ahead", "life",
    ],
}

# Which room owns the fields of a struct, by tree: check-fields.py. These are the parts of ns, store, server and peer, and op and
# conn as wholes. Fields that lie in ns, store, server and peer themselves are everybody's. A call is filled in by the file that has
# its type, which lies in several rooms: the lowest one is named first.
CALLS = "calls rings pages ahead"
OWNERS: dict[str, dict[str, str]] = {
    "daemon/core": {
        "ns_sets": "memory", "store_memory": "memory", "records": "records", "shared": "records",
        "ns_waits": "quota", "store_waits": "quota", "ns_catalog": "catalog", "ns_announced": "catalog", "ns_wakes": "catalog", "ns_watched": "catalog",
        "ns_expiry": "catalog", "ns_clients": "clients", "ns_space": "moves", "ns_coding": "moves", "store_moving": "moves", "ns_stock": "reclaim",
        "ns_compaction": "reclaim", "store_recalls": "memory", "ns_sink": "tiers", "store_fetching": "tiers",
        "leasable": "upkeep", "store_leasables": "upkeep", "ns_idle": "lifetimes",
    },
    "daemon/server": {
        "keeping": "keeping", "sockets": "sockets", "kept_sockets": "sockets", "reaping": "sockets",
        "peers": "peers", "tenants_turns": "peers", "turns": "peers", "leases": "waits", "key_waits": "waits", "checks": "waits", "followers": "waits",
        "services": "services", "movement": "services", "remotes": "services", "recorder": "services", "peer_links": "peers", "peer_conn": "peers",
        "peer_input": "peers", "peer_refusal": "peers", "peer_comeback": "peers", "peer_challenge": "peers",
        "peer_counts": "peers", "peer_times": "peers", "peer_recall": "waits", "closing": "waits",
    },
    "client/lib": {
        "conn": "connection", "conn_side": "connection", "conn_output": "connection", "conn_poll": "connection",
        "conn_events": "connection", "conn_resume": "connection", "op": CALLS, "op_fetch": CALLS, "op_lease": CALLS,
    },
}

# Rooms that make and end what has parts in many rooms, or read them for all: they may use any field.
MAKERS = {"daemon/core": {"objects", "lifetimes", "recovery"}, "daemon/server": {"objects"}, "client/lib": {"objects", "life"}}

# What users of a tree include. All of its rooms define what it declares, and any of them may include it.
PUBLIC = {"client/lib/kvlease.h"}


def tree_of(path: str) -> str:
    """The tree that a file named from the top of the source lies in; "": in none."""
    for tree in ROOMS:
        if path.startswith(tree + "/"):
            return tree
    return ""


def height(tree: str, path: str) -> int:
    """How high the file's room is in its tree; -1: the folder isn't listed."""
    parts = pathlib.PurePosixPath(path).relative_to(tree).parts
    if len(parts) == 1:
        return len(ROOMS[tree])
    return ROOMS[tree].index(parts[0]) if parts[0] in ROOMS[tree] else -1


def room_name(tree: str, path: str) -> str:
    parts = pathlib.PurePosixPath(path).relative_to(tree).parts
    return tree if len(parts) == 1 else f"{tree}/{parts[0]}"


def door(source: str, target: str) -> str:
    """Why `source` may not use `target`, both named from the top of the source; "": it may."""
    tree = tree_of(source)
    if not tree or tree_of(target) != tree or target in PUBLIC:
        return ""
    if height(tree, target) > height(tree, source):
        return f"{room_name(tree, source)} is below {room_name(tree, target)}"
    return ""


def known(kind: str) -> set[str]:
    """What rooms-known.txt says of this kind: not mended yet. The reason follows a #."""
    path = pathlib.Path(__file__).parent / "rooms-known.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.partition(": ")[2].partition(" # ")[0].rstrip() for line in lines if line.startswith(kind + ": ")}


def source(words: list[str]) -> pathlib.Path:
    """The source that the first word names, the current folder without one. Ends with 2 where that has no rooms: nothing
    would be looked at, and all be well."""
    top = pathlib.Path(words[0] if words else ".").resolve()
    for tree in ROOMS:
        if not any((top / tree).rglob("*.c")):
            print(f"{top} isn't the source of kvlease: it has no {tree}/**/*.c", file=sys.stderr)
            sys.exit(2)
    return top


def report(kind: str, violations: list[str]) -> int:
    """Prints what isn't known yet, and what is known and mended. The exit status: 0 where there is neither."""
    new = sorted(set(violations) - known(kind))
    mended = sorted(known(kind) - set(violations))
    for line in new:
        print(f"{kind}: {line}")
    for line in mended:
        print(f"mended, to be taken out of tests/tools/rooms-known.txt: {kind}: {line}")
    if not new and not mended:
        print(f"{kind}: ok" + (f", but for {len(known(kind))} known ones" if known(kind) else ""))
    return 1 if new or mended else 0
