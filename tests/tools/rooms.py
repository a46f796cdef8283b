"""
The rooms of the daemon's core, its server, its client of other hosts' stores and the library, and their one-way doors
(docs/develop/ARCHITECTURE.md, "Map of the source"):
check-edges.py looks at includes with them, check-calls.py at calls.

A tree of rooms is a folder; its rooms are folders in it. They are listed from the lowest to the highest: a room may use
itself and those before it. Files in the tree's own folder are above all of its rooms.
"""
from __future__ import annotations

import pathlib
import sys

ROOMS: dict[str, list[str]] = {
    "daemon/core": ["state", "memory", "cache", "clients", "moves", "sessions", "reclaim", "requests", "life"],
    "daemon/server": ["base", "config", "peers", "services", "handlers"],
    "daemon/remote": ["protocol", "endpoint", "io", "ask", "store"],
    "daemon/exchange": ["format"],
    "client/lib": ["connection", "shared", "objects", "follow", "keys", "mapping", "calls", "pages", "life"],
}

# Headers for a tree's users. All of its rooms define functions of them, and each may include them.
PUBLIC = {"client/lib/kvlease.h"}


def tree_of(path: str) -> str:
    """The tree of a file named from the top of the source; "": none."""
    for tree in ROOMS:
        if path.startswith(tree + "/"):
            return tree
    return ""


def height(tree: str, path: str) -> int:
    """Height of the file's room in its tree; -1: the folder isn't listed."""
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


def source(words: list[str]) -> pathlib.Path:
    """The source that the first word names; without one, the current folder. Ends with 2 if that has no rooms, since
    a check of nothing would pass."""
    top = pathlib.Path(words[0] if words else ".").resolve()
    for tree in ROOMS:
        if not any((top / tree).rglob("*.c")):
            print(f"{top} isn't the source of kvlease: it has no {tree}/**/*.c", file=sys.stderr)
            sys.exit(2)
    return top


def report(kind: str, violations: list[str]) -> int:
    """Prints the violations. Returns the exit status: 0 if there is none."""
    for line in sorted(set(violations)):
        print(f"{kind}: {line}")
    if not violations:
        print(f"{kind}: ok")
    return 1 if violations else 0
