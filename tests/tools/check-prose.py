#!/usr/bin/env python3
"""
Fails where a comment of a C file begins with a word that hides its subject. A comment names its thing and says one fact.

  check-prose.py SOURCE
"""
from __future__ import annotations

import pathlib
import re
import sys

import rooms

TREES = ("base", "client", "daemon", "gpu", "lab", "policy", "proto", "tests")
COMMENT = re.compile(r"/\*[\s*]*(Of|It|Who|What|As|Likewise|The same|Nobody|Those)\b(.*?)\*/", re.DOTALL)


def found(top: pathlib.Path, tree: str) -> list[str]:
    """The comments of a tree that begin so, with their places."""
    paths = sorted((top / tree).rglob("*.[ch]"))
    if not paths:
        sys.exit(f"{top / tree} has no C file: nothing would be read")
    lines = []
    for path in paths:
        text = path.read_text()
        for match in COMMENT.finditer(text):
            words = re.sub(r"[\s*]+", " ", match.group(1) + match.group(2))
            lines.append(f"{path.relative_to(top)}:{text.count(chr(10), 0, match.start()) + 1}: {words[:100]}")
    return lines


if __name__ == "__main__":
    SOURCE = rooms.source(sys.argv[1:])
    sys.exit(rooms.report("prose", [line for tree in TREES for line in found(SOURCE, tree)]))
