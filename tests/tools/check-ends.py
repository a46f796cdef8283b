#!/usr/bin/env python3
"""
Fails where libkvlease, or the Python package, could end its process, which is an engine: by an assertion, abort(),
exit() or a signal. An error is returned instead, or the compiler checks it (static_assert).

  check-ends.py SOURCE TREE=LIBRARY.a...

TREE: a folder of the source, as "client/lib". LIBRARY.a: a static library of its objects. Checked are all objects of
client/lib, those that they use of the other libraries, and the source of these and of the package.
"""
from __future__ import annotations

import collections
import importlib.util
import pathlib
import re
import sys
import types

# Functions that end a process, or a thread of it, as object files name them.
ENDS = set("""abort __assert __assert_fail __assert_perror_fail exit _exit _Exit quick_exit pthread_exit raise kill tgkill
pthread_kill err errx verr verrx error error_at_line""".split())
# Functions of protoc-c with assertions in them. proto/msg.c packs and unpacks without them.
MADE = re.compile(r"kvlease__v1__\w+__(get_packed_size|pack|pack_to_buffer|unpack|free_unpacked)$")

# Words of the source for these, and for ends that the compiler makes an instruction of.
WORDS = re.compile(
    r"(?<![\w.>])(assert|assert_perror|abort|_?exit|_Exit|quick_exit|errx?|unreachable|__builtin_(?:trap|unreachable|abort)|"
    r"Py_(?:FatalError|Exit|UNREACHABLE))\s*\(")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)

# Reviewed: source -> why it can't end anything. Each entry has to be used.
ALLOWED = {
    "proto/kvlease.pb-c.c": "made by protoc-c: its assertions are in functions that nobody calls (MADE)",
}


def load_calls() -> types.ModuleType:
    """Loads check-calls.py, whose name can't be imported."""
    spec = importlib.util.spec_from_file_location("check_calls", pathlib.Path(__file__).parent / "check-calls.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(top: pathlib.Path, libraries: list[tuple[str, pathlib.Path]]) -> tuple[dict[str, str], dict[str, set[str]]]:
    """The source that defines each name, and the names that each source uses."""
    calls = load_calls()
    defined: dict[str, str] = {}
    used: dict[str, set[str]] = collections.defaultdict(set)
    for tree, library in libraries:
        files = [p.relative_to(top / tree).as_posix() for p in sorted((top / tree).rglob("*.c"))]
        sources = {f.replace("/", "_") + ".o": f"{tree}/{f}" for f in files}
        sources["meson-generated_.._kvlease.pb-c.c.o"] = f"{tree}/kvlease.pb-c.c"
        calls.read_symbols(tree, library, sources, defined, used)
    return defined, used


def reached(defined: dict[str, str], used: dict[str, set[str]], root: str) -> list[str]:
    """All sources of the tree `root`, and those that a linker adds to them."""
    found = {source for source in {*defined.values(), *used} if source.startswith(root + "/")}
    todo = list(found)
    while todo:
        for name in used.get(todo.pop(), ()):
            source = defined.get(name)
            if source is not None and source not in found:
                found.add(source)
                todo.append(source)
    return sorted(found)


def check_source(top: pathlib.Path, source: str) -> list[str]:
    text = COMMENT.sub(lambda m: "\n" * m.group().count("\n"), (top / source).read_text())
    return [f"{source}:{text.count(chr(10), 0, m.start()) + 1}: {m.group().rstrip('( ')}" for m in WORDS.finditer(text)]


def check(top: pathlib.Path, libraries: list[tuple[str, pathlib.Path]], root: str = "client/lib",
          package: str = "client/python/src", allowed: dict[str, str] = ALLOWED) -> list[str]:
    defined, used = read(top, libraries)
    sources = reached(defined, used, root)
    bad, idle = [], set(allowed)
    if not sources:
        bad.append(f"no objects of {root} were given")
    for source in sources:
        ends = sorted(name for name in used.get(source, ()) if name in ENDS or (MADE.match(name) and source not in allowed))
        if source in allowed:
            idle -= {source} if ends else set()
            continue
        bad += [f"{source}: uses {name}" for name in ends] + check_source(top, source)
    files = sorted((top / package).glob("*.[ch]"))
    if not files:
        bad.append(f"no source is in {package}")
    for path in files:
        bad += check_source(top, path.relative_to(top).as_posix())
    return bad + [f"{source} is allowed and ends nothing: take it out" for source in sorted(idle)]


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    given = [(arg.partition("=")[0], pathlib.Path(arg.partition("=")[2])) for arg in sys.argv[2:]]
    problems = check(pathlib.Path(sys.argv[1]).resolve(), given)
    print("\n".join(problems) if problems else "ends: ok")
    sys.exit(1 if problems else 0)
