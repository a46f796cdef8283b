#!/usr/bin/env python3
"""
Fails where a source file has more than MAX_LINES lines, a room more than MAX_ROOM_LINES, or a struct of a room more than
MAX_FIELDS fields: each is then more than one thing.

  check-sizes.py SOURCE
"""
from __future__ import annotations

import collections
import pathlib
import re
import sys

import rooms

MAX_LINES = 800
# A room is what one person can know, some 3,000 lines of .c and .h: there it is time to part it, here it is late.
MAX_ROOM_LINES = 3200
MAX_FIELDS = 30
# Longer, and why.
EXCEPTIONS = {"client/lib/kvlease.h": "users read it, and copy it, as a whole (docs/ARCHITECTURE.md)"}
SOURCES = (".c", ".h", ".py", ".sh")
MADE = ("build", "venv", ".")  # folders that aren't sources
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
STRUCT = re.compile(r"^struct (\w+) \{$(.*?)^\}", re.MULTILINE | re.DOTALL)


def count_fields(body: str) -> int:
    """Names that a struct's body declares. A struct or union within it is one, but for a union without a name, of which
    the alternatives share one place."""
    inner = re.compile(r"\b(?:struct|union)(?: \w+)?\s*\{[^{}]*\}")
    while inner.search(body):
        body = inner.sub("int", body)
    n = 0
    for statement in body.split(";"):
        if statement.strip():
            n += 1 + len(re.findall(r",", re.sub(r"\([^()]*\)", "", statement)))
    return n


def check(top: pathlib.Path) -> list[str]:
    bad = []
    room_lines: collections.Counter[str] = collections.Counter()
    trees = [p for p in top.iterdir() if p.is_dir() and not p.name.startswith(MADE)]
    paths = [p for tree in trees for p in tree.rglob("*") if p.name.endswith(SOURCES) and p.is_file()]
    for path in sorted(paths):
        name, text = path.relative_to(top).as_posix(), path.read_text()
        if text.count("\n") > MAX_LINES and name not in EXCEPTIONS:
            bad.append(f"{name} has more than {MAX_LINES} lines")
        tree = rooms.tree_of(name)
        if tree and name.endswith((".c", ".h")):
            room_lines[rooms.room_name(tree, name)] += text.count("\n")
        if tree and name.endswith((".c", ".h")) and name != "client/lib/kvlease.h":
            for match in STRUCT.finditer(COMMENT.sub("", text)):
                if count_fields(match.group(2)) > MAX_FIELDS:
                    bad.append(f"{name}: struct {match.group(1)} has more than {MAX_FIELDS} fields")
    bad += [f"{room} has more than {MAX_ROOM_LINES} lines" for room, n in sorted(room_lines.items()) if n > MAX_ROOM_LINES]
    return bad


if __name__ == "__main__":
    sys.exit(rooms.report("sizes", check(rooms.source(sys.argv[1:]))))
