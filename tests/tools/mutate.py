#!/usr/bin/env python3
"""
Shows which faults the tests find. Changes the product in one place at a time (a mutant), runs the tests until one
fails, and prints a table of the mutants and the tests that found them. A mutant that no test finds ("survived") shows
a missing test, code that does nothing, or a change that makes no difference.

Works on a copy of the source and of a build directory, which has to be up to date. Each mutant changes an operator or
a constant, negates a condition or drops a call, in a function of a C file. First run the unit tests that are linked
with the changed object, then the short integration tests; those that name the changed functions or files go first.
"""
from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

TREES = ["daemon/core", "daemon/server", "client/lib", "policy"]
NO_PRODUCT = {"policy/sim", "policy/hosts"} # simulators
HIDDEN = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'|^#(?:[^\n]*\\\n)*[^\n]*",
                    re.DOTALL | re.MULTILINE)
BODY = re.compile(r"^\{$.*?^\}", re.DOTALL | re.MULTILINE)
# A change to these shows nothing: checks of programmers' errors, texts of logs, places where tests kill a process.
# Leaks need the address sanitizer.
PASSED_OVER = re.compile(
    r"assert|FAULT_POINT|PROBE|\blog_|_log\(|KVL_TEST|__builtin|^\s+\w*(?:free|close|munmap|deinit)\(")
OPERATORS = {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+", "&&": "||",
             "||": "&&", "+=": "-=", "-=": "+=", "&": "|", "|": "&"}
OPERATOR = re.compile(r"(?<= )(" + "|".join(sorted(map(re.escape, OPERATORS), key=len, reverse=True)) + r")(?= )")
CONSTANT = re.compile(r"(?<![\w.])(\d+|true|false)(?![\w.])")
CALL = re.compile(r"^\s+(?!return\b)\w+\(.*\);$")
CONDITION = re.compile(r"^(\s+(?:\} else )?if )(\(.*\))( \{)?$")
KINDS = ["operator", "constant", "condition", "call"]
SYMBOLS = set("TDBRVW")
Test = dict[str, Any] # as meson describes one


@dataclasses.dataclass
class Mutant:
    file: str
    line: int
    kind: str
    before: str
    after: str
    found_by: str = ""
    seconds: float = 0.0
    state: str = "survived"  # found, survived, or unsure: the test fails without the mutant, too

    @property
    def change(self) -> str:
        return f"{self.kind}: {self.before.strip()}  ->  {self.after.strip()}"


def balanced(text: str) -> bool:
    """Whether the first parenthesis of the text is closed by its last character."""
    depth = 0
    for at, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return at == len(text) - 1
    return False


def sites_of_line(line: str, shown: str, previous: str) -> list[tuple[str, str]]:
    """Changes of one line, as (kind, line after it). `shown`: the line with comments and strings blanked."""
    sites = []
    for kind, pattern in (("operator", OPERATOR), ("constant", CONSTANT)):
        for m in pattern.finditer(shown):
            word = m.group()
            new = OPERATORS.get(word) or {"true": "false", "false": "true"}.get(word) or str(int(word) + 1)
            sites.append((kind, line[:m.start()] + new + line[m.end():]))
    condition = CONDITION.match(shown.rstrip())
    if condition and balanced(condition.group(2)):
        start, end = condition.span(2)
        sites.append(("condition", f"{line[:start]}(!{line[start:end]}){condition.group(3) or ''}"))
    if CALL.match(shown.rstrip()) and re.search(r"([;{})]|else)$", previous.rstrip()):
        sites.append(("call", line[:len(line) - len(line.lstrip())] + ";"))
    return sites


def sites_of(top: pathlib.Path, file: str) -> list[Mutant]:
    text = (top / file).read_text()
    shown = HIDDEN.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    lines, shown_lines = text.split("\n"), shown.split("\n")
    sites = []
    for body in BODY.finditer(shown):
        first = shown.count("\n", 0, body.start())
        for n in range(first + 1, first + body.group().count("\n")):
            if PASSED_OVER.search(shown_lines[n]):
                continue
            previous = next((p for p in reversed(shown_lines[first:n]) if p.strip()), "")
            sites += [Mutant(file, n + 1, kind, lines[n], after)
                      for kind, after in sites_of_line(lines[n], shown_lines[n], previous)]
    return sites


def choose(top: pathlib.Path, trees: list[str], seed: int) -> Iterator[Mutant]:
    """Mutants without end, in an order that the seed gives. All kinds are equally likely."""
    by_kind: dict[str, list[Mutant]] = collections.defaultdict(list)
    for tree in trees:
        for path in sorted((top / tree).rglob("*.c")):
            file = path.relative_to(top).as_posix()
            if not any(file.startswith(skip + "/") for skip in NO_PRODUCT):
                for site in sites_of(top, file):
                    by_kind[site.kind].append(site)
    rng = random.Random(seed)
    while any(by_kind.values()):
        sites = by_kind[rng.choice([kind for kind in KINDS if by_kind[kind]])]
        yield sites.pop(rng.randrange(len(sites)))


def recorded(top: pathlib.Path, path: pathlib.Path) -> Iterator[Mutant]:
    """Mutants of an earlier run's --json. Lines are found again by their text, nearest to where they were."""
    for row in json.loads(path.read_text()):
        lines = (top / row["file"]).read_text().split("\n") if (top / row["file"]).exists() else []
        at = [n for n, line in enumerate(lines, 1) if line == row["before"]]
        if not at:
            print(f"{row['file']}:{row['line']}: gone: {row['before'].strip()}", file=sys.stderr)
            continue
        yield Mutant(row["file"], min(at, key=lambda n: abs(n - row["line"])), row["kind"], row["before"], row["after"])


class Build:
    """A copy of the source and of its build directory, where tests run."""

    def __init__(self, source: pathlib.Path, build: pathlib.Path, scratch: pathlib.Path, jobs: int) -> None:
        self.top, self.dir, self.jobs = scratch, scratch / build.relative_to(source), jobs
        files = subprocess.run(["git", "-C", source, "ls-files", "-z"], check=True, capture_output=True).stdout
        for name in filter(None, files.decode().split("\0")):
            if (source / name).is_file():
                (scratch / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, scratch / name) # with its time: nothing is to be built anew
        shutil.copytree(build, self.dir, symlinks=True)
        for path in [self.dir / "build.ninja", *self.dir.rglob("*.json"), *self.dir.rglob("*-module")]:
            data = path.read_bytes()
            if os.fsencode(source) in data:
                times = path.stat()
                path.write_bytes(data.replace(os.fsencode(source), os.fsencode(scratch)))
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        info = self.dir / "meson-info"
        self.tests = json.loads((info / "intro-tests.json").read_text())
        targets = json.loads((info / "intro-targets.json").read_text())
        self.outputs = {t["id"]: [os.path.relpath(f, self.dir) for f in t["filename"]] for t in targets}
        self.sources = {f: [s for part in t["target_sources"] for s in part.get("sources", [])]
                        for t in targets for f in t["filename"]}
        self.after = self.read_graph()
        self.times = self.read_times(build)

    def read_graph(self) -> dict[str, set[str]]:
        """What ninja makes of each file."""
        after: dict[str, set[str]] = collections.defaultdict(set)
        text = (self.dir / "build.ninja").read_text().replace("$\n", "")
        for m in re.finditer(r"^build (.*?): \S+ ?(.*)$", text, re.MULTILINE):
            for name in re.split(r" +(?:\|\|? )?", m.group(2)):
                after[name].update(m.group(1).replace("|", "").split())
        return after

    @staticmethod
    def read_times(build: pathlib.Path) -> dict[str, float]:
        """Seconds that tests took when meson ran them last."""
        times: dict[str, float] = {}
        for log in sorted((build / "meson-logs").glob("*.json"), key=lambda p: p.stat().st_mtime):
            for line in log.read_text().splitlines():
                row = json.loads(line)
                times[row["name"].split(" / ")[-1]] = row["duration"]
        return times

    def made_of(self, name: str) -> set[str]:
        """What is made of a file, directly or not."""
        found: set[str] = set()
        todo = [name]
        while todo:
            for out in self.after.get(todo.pop(), set()) - found:
                found.add(out)
                todo.append(out)
        return found

    def objects(self, file: str) -> list[str]:
        outputs = self.after.get(os.path.relpath(self.top / file, self.dir), [])
        return sorted(name for name in outputs if name.endswith(".o"))

    def ninja(self, *targets: str) -> bool:
        command = ["ninja", "-C", str(self.dir), f"-j{self.jobs}", "-k0", *targets]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    @functools.cache  # noqa: B019
    def symbols(self, path: str) -> frozenset[str]:
        command = ["nm", "--format=posix", str(self.dir / path)]
        out = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        rows = (line.split() for line in out.splitlines())
        return frozenset(row[0] for row in rows if len(row) > 1 and row[1] in SYMBOLS)

    def limit(self, test: Test) -> float:
        return min(test["timeout"] or 1e9, 30 + 10 * self.times.get(test["name"], 30))

    def passes(self, test: Test) -> bool:
        with subprocess.Popen(test["cmd"], env={**os.environ, **test["env"]}, cwd=test["workdir"] or self.dir,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              start_new_session=True) as process:
            try:
                return process.wait(self.limit(test)) in (0, 77)
            except subprocess.TimeoutExpired:
                return False
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL) # those that the test left, too

    def needs(self, test: Test) -> list[str]:
        return [out for target in test["depends"] for out in self.outputs.get(target, [])]

    def likely(self, file: str) -> tuple[list[Test], list[Test]]:
        """Unit tests linked with the file's objects, and short integration tests; the likeliest first."""
        names = frozenset().union(*map(self.symbols, self.objects(file)))
        made = frozenset().union(*map(self.made_of, self.objects(file)))
        words = set(re.split(r"[-_/.]", file)) - {"daemon", "client", "core", "server", "lib", "policy", "c", ""}
        ranks: dict[bool, list[tuple[tuple[float, float], Test]]] = {True: [], False: []}
        for test in self.tests:
            suites = {s.partition(":")[2] or s for s in test["suite"]}
            program = os.path.relpath(test["cmd"][0], self.dir)
            if suites & {"full", "hour", "tools", "spin", "bench"} or not made & {program, *self.needs(test)}:
                continue
            unit = program in made and "integration" not in suites and bool(names & self.symbols(program))
            texts = [pathlib.Path(s).read_text(errors="replace") for s in self.sources.get(test["cmd"][0], [])]
            named = sum(any(re.search(rf"\b{name}\b", text) for text in texts) for name in names)
            score = named + 3 * len(words & set(re.split(r"[-_]", test["name"]))) - 5 * ("cudaipc" in suites)
            ranks[unit].append(((-score, self.times.get(test["name"], 10)), test))
        first, then = ([test for _, test in sorted(ranks[u], key=lambda r: r[0])] for u in (True, False))
        return first, then

    def first_failure(self, file: str, seconds: float) -> str:
        """The first test that fails, twice; "" if none does. `seconds`: for integration tests."""
        unit, whole = self.likely(file)
        for part in (unit[at:at + 12] for at in range(0, len(unit), 12)):
            self.ninja(*{need for test in part for need in self.needs(test)})
            for test in part:
                if not self.passes(test) and not self.passes(test):
                    return str(test["name"])
        began = time.monotonic()
        for test in whole:
            if time.monotonic() - began > seconds:
                break
            self.ninja(*self.needs(test))
            if not self.passes(test) and not self.passes(test):
                return str(test["name"])
        return ""

    def digest(self, file: str) -> str:
        """Code of a file's objects; without debuggers' data, which has names of folders."""
        sums = hashlib.sha256()
        for name in self.objects(file):
            subprocess.run(["objcopy", "--strip-debug", self.dir / name, self.dir / "code"], check=True)
            sums.update((self.dir / "code").read_bytes())
        return sums.hexdigest()

    def write(self, mutant: Mutant, mutated: bool) -> bool:
        """Writes the line changed, or as it was, and builds its objects. Returns whether they can be built."""
        path = self.top / mutant.file
        lines = path.read_text().split("\n")
        lines[mutant.line - 1] = mutant.after if mutated else mutant.before
        path.write_text("\n".join(lines))
        return self.ninja(*self.objects(mutant.file))


def try_mutant(build: Build, mutant: Mutant, seconds: float) -> bool:
    """Looks for a test that finds the mutant. Returns false if the compiler refuses it or makes the same code."""
    if not build.objects(mutant.file):
        return False
    before, began = build.digest(mutant.file), time.monotonic()
    try:
        if not build.write(mutant, True) or build.digest(mutant.file) == before:
            return False
        mutant.found_by = build.first_failure(mutant.file, seconds)
        mutant.state = "found" if mutant.found_by else "survived"
        mutant.seconds = round(time.monotonic() - began, 1)
        return True
    finally:
        build.write(mutant, False)


def check_finders(build: Build, mutants: list[Mutant]) -> None:
    """Marks mutants whose test fails without them, too."""
    by_name = {test["name"]: test for test in build.tests}
    for name in sorted({m.found_by for m in mutants} - {""}):
        build.ninja(*build.needs(by_name[name]))
        if not build.passes(by_name[name]) and not build.passes(by_name[name]):
            for mutant in mutants:
                mutant.state = "unsure" if mutant.found_by == name else mutant.state


def row(mutant: Mutant) -> str:
    where = f"{mutant.file}:{mutant.line}"
    return f"{mutant.state:9}{mutant.found_by or '-':28}{mutant.seconds:7.1f}  {where}  {mutant.change}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build", type=pathlib.Path, help="build directory (default: build)")
    parser.add_argument("--seed", type=int, default=1, help="chooses the mutants (default: 1)")
    parser.add_argument("--count", type=int, default=12, help="mutants to try (default: 12)")
    parser.add_argument("--trees", nargs="+", default=TREES, metavar="FOLDER", help=f"default: {' '.join(TREES)}")
    parser.add_argument("--seconds", type=float, default=600, help="for integration tests of one mutant (default: 600)")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time (default: 2)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the table there, too")
    parser.add_argument("--again", type=pathlib.Path, metavar="FILE", help="the mutants of an earlier run's --json")
    parser.add_argument("--scratch", type=pathlib.Path, help="folder for the copy (default: where TMPDIR says)")
    options = parser.parse_args()
    dir = options.build.resolve()
    if not (dir / "build.ninja").exists():
        parser.error(f"{dir}: not made by meson")
    source = pathlib.Path(subprocess.run(["git", "-C", dir, "rev-parse", "--show-toplevel"], check=True,
                                         capture_output=True, text=True).stdout.strip())
    tried: list[Mutant] = []
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="mutate-") as scratch:
        build = Build(source, dir, pathlib.Path(scratch).resolve(), options.jobs)
        if not build.ninja():
            parser.error(f"{dir}: ninja fails before the first mutant: make it work first")
        chosen = recorded(build.top, options.again) if options.again else choose(build.top, options.trees, options.seed)
        for mutant in chosen:
            if len(tried) == options.count:
                break
            if try_mutant(build, mutant, options.seconds):
                tried.append(mutant)
                print(row(mutant), flush=True)
        check_finders(build, tried)
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(m) for m in tried], indent=1) + "\n")
    survivors = [m for m in tried if m.state != "found"]
    print(f"{len(tried)} mutants, {len(tried) - len(survivors)} found")
    for mutant in survivors:
        print(row(mutant))
    return 0


if __name__ == "__main__":
    sys.exit(main())
