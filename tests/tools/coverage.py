#!/usr/bin/env python3
"""
Line coverage of some sources: BUILD-DIR PERCENT SOURCE...

Reads what a build with -Db_coverage=true has left behind (gcov --json-format), prints a line per
source with the lines that weren't run, and fails where all together are below PERCENT.

Not counted: a line that ends in `/* not covered: why */`, and those from a line that begins with
`/* not covered from here: why */` to `/* covered again */`. For what only hardware can do.
"""
import json
import os
import re
import subprocess
import sys

ONE = re.compile(r"/\* not covered: .+\*/\s*$")
FROM = re.compile(r"^\s*/\* not covered from here: ")
AGAIN = re.compile(r"^\s*/\* covered again \*/")


def excluded(source: str) -> set:
    """Numbers of the lines that are left out."""
    lines, inside = set(), False
    for number, line in enumerate(open(source, encoding="utf-8"), 1):
        if FROM.search(line):
            inside = True
        if inside or ONE.search(line):
            lines.add(number)
        if AGAIN.search(line):
            inside = False
    if inside:
        sys.exit(f'coverage: {source}: "not covered from here" has no end')
    return lines


def notes(build: str, source: str) -> list:
    """Notes files of a source, for all targets that compiled it."""
    name = source.replace("/", "_") + ".gcno"
    return [os.path.join(where, f) for where, _, files in os.walk(build) for f in files
            if f == name or f == os.path.basename(source) + ".gcno"]


def counts(build: str, source: str) -> dict:
    """How often each line ran: the sum over all targets. `build` and `source` are absolute."""
    total: dict = {}
    for note in notes(build, os.path.relpath(source)):
        if not os.path.exists(note[:-5] + ".gcda"):
            continue
        text = subprocess.run(["gcov", "--json-format", "--stdout", note], cwd=build, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        for document in text.splitlines():
            for f in json.loads(document)["files"]:
                if os.path.realpath(os.path.join(build, f["file"])) != os.path.realpath(source):
                    continue
                for line in f["lines"]:
                    number = line["line_number"]
                    total[number] = total.get(number, 0) + line["count"]
    return total


def ranges(numbers: list) -> str:
    """[1, 2, 3, 7] -> "1-3 7"."""
    words, start = [], None
    for at, number in enumerate(numbers):
        if start is None:
            start = number
        if at + 1 == len(numbers) or numbers[at + 1] != number + 1:
            words.append(str(start) if start == number else f"{start}-{number}")
            start = None
    return " ".join(words)


def main(build: str, percent: str, *sources: str) -> None:
    n_lines = n_run = 0
    build = os.path.abspath(build)
    for source in sources:
        left_out = excluded(source)
        lines = {n: c for n, c in counts(build, os.path.abspath(source)).items()
                 if n not in left_out}
        missed = sorted(n for n, c in lines.items() if c == 0)
        if not lines:
            sys.exit(f"coverage: nothing ran of {source}")
        n_lines += len(lines)
        n_run += len(lines) - len(missed)
        print(f"{source}: {100 * (len(lines) - len(missed)) / len(lines):5.1f} % of {len(lines)} "
              f"lines; not run: {ranges(missed) or 'none'}")
    share = 100 * n_run / n_lines
    print(f"coverage: {share:.1f} % of {n_lines} lines, {percent} % are asked for")
    if share < float(percent):
        sys.exit(1)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
