#!/usr/bin/env python3
"""
Fails where several files of the production code have a static function of the same one-word name (begin, take, finish): a
backtrace, a profile or a search then doesn't say which one is meant. A name of two words or more says what it is about.

  check-names.py SOURCE
"""
from __future__ import annotations

import collections
import pathlib
import re
import sys

import rooms

TREES = ("base", "proto", "gpu", "policy", "daemon", "client")
# Users' code: each example is a program of its own, which is read alone.
LEFT_OUT = "client/examples/"
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
ATTRIBUTE = re.compile(r"__attribute__\(\((?:[^()]|\([^()]*\))*\)\)")
STATIC = re.compile(r"^static [\w \*]*?\b(\w+)\((?!\*)", re.MULTILINE)


def check(top: pathlib.Path) -> list[str]:
    files: dict[str, list[str]] = collections.defaultdict(list)
    for path in sorted(p for tree in TREES for p in (top / tree).rglob("*.[ch]")):
        name = path.relative_to(top).as_posix()
        if name.startswith(LEFT_OUT):
            continue
        text = ATTRIBUTE.sub("", COMMENT.sub("", path.read_text()))
        for function in sorted(set(STATIC.findall(text))):
            files[function].append(name)
    return [f"{function}() is static in {', '.join(where)}" for function, where in sorted(files.items())
            if "_" not in function and len(where) > 1]


if __name__ == "__main__":
    sys.exit(rooms.report("names", check(rooms.source(sys.argv[1:]))))
