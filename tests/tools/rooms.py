"""
The rooms of the daemon's core, its server and the library, and their one-way doors (docs/ARCHITECTURE.md, "Rooms"):
check-edges.py looks at includes with them, check-calls.py at calls.

A tree of rooms is a folder; its rooms are folders in it. They are listed from the lowest to the highest: a room may use
itself and those before it. Files in the tree's own folder are above all of its rooms.
"""
from __future__ import annotations

import pathlib

ROOMS: dict[str, list[str]] = {
    "daemon/core": [
        "ground", "objects", "quota", "records", "memory", "catalog", "clients", "moves", "journal", "sessions", "reclaim", "tiers",
        "upkeep", "requests", "lifetimes", "recovery",
    ],
    "daemon/server": [
        "system", "settings", "wire", "objects", "keeping", "sockets", "peers", "waits", "services", "tenants", "handlers",
        "administration",
    ],
    "client/lib": [
        "connection", "shared", "objects", "keys", "mapping", "calls", "rings", "pages", "ahead", "life",
    ],
}

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
    """What rooms-known.txt says of this kind: not mended yet."""
    path = pathlib.Path(__file__).parent / "rooms-known.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.partition(": ")[2] for line in lines if line.startswith(kind + ": ")}


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
