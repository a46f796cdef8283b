#!/usr/bin/env python3
"""
Fails where a room of the daemon's core, its server or the library uses a function or a variable of a room above it
(rooms.py), or where a function is declared in a header of another room than the one it is defined in. A header in
the tree's own folder declares what all rooms define. What is used is read from object files, which is what the compiler
made of the source.

  check-calls.py SOURCE TREE=LIBRARY.a...

LIBRARY.a: a static library of the tree's objects, as meson names them ("room_file.c.o").
"""
from __future__ import annotations

import collections
import pathlib
import re
import subprocess
import sys

import rooms

DEFINED = set("TDBRVWC")
DECLARATION = re.compile(r"^[a-z][\w \*]*?[ \*](\w+)\(", re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def source_of(tree: str, member: str, sources: dict[str, str]) -> str:
    name = sources.get(member)
    if name is None:
        raise SystemExit(f"{tree}: no source file for the object {member}")
    return name


def read_symbols(tree: str, library: pathlib.Path, sources: dict[str, str],
                 defined: dict[str, str], used: dict[str, set[str]]) -> None:
    """Symbols that each source file of the library defines (name -> file), and uses (file -> names)."""
    out = subprocess.run(["nm", "-A", "--format=posix", str(library)], check=True, capture_output=True, text=True).stdout
    if not out:
        raise SystemExit(f"{library}: no object in it has a symbol")
    for line in out.splitlines():
        where, _, rest = line.partition("]: ")
        fields = rest.split()
        if len(fields) < 2:
            continue
        source = source_of(tree, where.rpartition("[")[2].rpartition("/")[2], sources)
        if fields[1] == "U":
            used[source].add(fields[0])
        elif fields[1] in DEFINED:
            defined[fields[0]] = source


def declared_in(header: pathlib.Path) -> set[str]:
    """Functions that a header declares and doesn't define."""
    text = COMMENT.sub("", header.read_text())
    names = set()
    for match in DECLARATION.finditer(text):
        rest = text[match.end():]
        end = re.search(r"[;{]", rest)
        if end and end.group() == ";":
            names.add(match.group(1))
    return names


def check(top: pathlib.Path, libraries: list[tuple[str, pathlib.Path]]) -> list[str]:
    bad = []
    # By tree: daemon and library have functions of the same names.
    defined: dict[str, dict[str, str]] = collections.defaultdict(dict)
    used: dict[str, set[str]] = collections.defaultdict(set)
    for tree, library in libraries:
        files = [p.relative_to(top / tree).as_posix() for p in sorted((top / tree).rglob("*.c"))]
        read_symbols(tree, library, {f.replace("/", "_") + ".o": f"{tree}/{f}" for f in files}, defined[tree], used)
    for source in sorted(used):
        where = defined[rooms.tree_of(source)]
        for name in sorted(used[source] & where.keys()):
            reason = rooms.door(source, where[name])
            if reason:
                bad.append(f"{source}: uses {name} of {where[name]}: {reason}")
    for tree, where in defined.items():
        for header in sorted((top / tree).glob("*/*.h")):
            rel = header.relative_to(top).as_posix()
            for name in sorted(declared_in(header) & where.keys()):
                if rooms.room_name(tree, where[name]) != rooms.room_name(tree, rel):
                    bad.append(f"{rel}: declares {name}, which is defined in {where[name]}")
    return bad


if __name__ == "__main__":
    source = rooms.source(sys.argv[1:2])
    given = [(arg.partition("=")[0], pathlib.Path(arg.partition("=")[2])) for arg in sys.argv[2:]]
    if {tree for tree, _ in given} != set(rooms.ROOMS):
        print(f"usage: check-calls.py SOURCE TREE=LIBRARY.a..., with each of {', '.join(rooms.ROOMS)}", file=sys.stderr)
        sys.exit(2)
    sys.exit(rooms.report("calls", check(source, given)))
