#!/usr/bin/env python3
"""check-rules.py ROOT: the rules of the protocol that the source names are those that are counted.

A violation whose rule isn't in calls_note_violation()'s table (daemon/server/base/calls.h) is counted as
"other", which can't be looked up. A rule of the table that the source doesn't name is exported as 0 for ever.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
WORD = r'"([a-z]+(?:-[a-z]+)*)"'
# peer_violation(p, "fds"), ret->violation = "magazine", *ret_rule = "ring-tail", rule = "bad-frame"
NAMED = [rf"violation\([^;\"]*{WORD}\)", rf"(?:violation|rule) = {WORD}"]


def named(text):
    found = {word for pattern in NAMED for word in re.findall(pattern, text)}
    for body in re.findall(r"broken_rule\([^;{]*\)\n\{\n(.*?)\n\}", text, re.S):
        found |= set(re.findall(rf"return {WORD};", body))
    return found


def main():
    table = re.findall(rf"X\({WORD}\)", (root / "daemon/server/base/calls.h").read_text())
    files = [root / "proto/frame.c", *sorted((root / "daemon").rglob("*.c"))]
    where = {word: path for path in files for word in named(path.read_text())}
    problems = [f"{path}: rule {word} isn't in CALLS_RULE_TABLE" for word, path in where.items() if word not in table]
    problems += [f"CALLS_RULE_TABLE: nothing names rule {word}" for word in table if word not in where and word != "other"]
    if len(where) < 15:
        problems.append("the source can't be read: too few rules found")
    print("\n".join(problems) if problems else f"rules: {len(table)}, all counted by name")
    return 1 if problems else 0


sys.exit(main())
