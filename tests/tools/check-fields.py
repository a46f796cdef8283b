#!/usr/bin/env python3
"""
Fails where a room uses fields of a struct of another room (OWNERS in rooms.py) as it may not:

  - a room below the owner doesn't use them: that would be a door that goes upwards;
  - a room above the owner doesn't write them (what it does through a pointer to one isn't seen).

Files in the tree's own folder, and the rooms that make and end these structs (MAKERS), may do both. What is done yet is listed in
rooms-known.txt, with its reason, and can only become less.

The compiler says what is a use: for each room it is given copies of the headers in which fields of rooms above are deprecated,
and those of rooms below are const. Only sources that name such a field, or include a header that does, are looked at.

  check-fields.py SOURCE BUILD

BUILD: the folder of the build, which has compile_commands.json.
"""
from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import rooms

STRUCT = re.compile(r"^struct (\w+) \{$(.*?)^\}", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
NAME = re.compile(r"\(\*(\w+)\)|(\w+)(?:\[[^\[\]]*\])*$")
USE = re.compile(r"(.*?):\d+:\d+: warning: '(\w+)' is deprecated: (\w+ of \w+)")
WRITE = re.compile(r"(.*?):\d+:\d+: error: \w+ of (?:read-only )?member '(\w+)'")

Command = tuple[str, list[str], str]  # a source named from the top, the arguments, the folder to run them in


def fields_of(body: str, owners: dict[str, str]) -> list[tuple[int, int, str]]:
    """The fields that a struct's body, without comments, declares: where the name begins, where the declarator ends, the name.
    Structs and unions within it aren't looked into, and those that have an owner aren't fields of this one."""
    found, depth, begin = [], 0, 0
    for at, char in enumerate(body):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0 and char in ";,":
            match = NAME.search(body, begin, at)
            part = re.match(r"\s*struct (\w+) \w", body[begin:at])
            if match and "{" not in body[begin:at] and not (part and part.group(1) in owners):
                found.append((match.start(match.lastindex or 0), at, match.group(match.lastindex or 0)))
            begin = at + 1
    return found


def mark(text: str, room: str, tree: str) -> str:
    """A header as `room` is to see it. Lines stay where they are."""
    order, owners = rooms.ROOMS[tree], rooms.OWNERS[tree]

    def of_struct(match: re.Match[str]) -> str:
        owner, *others = owners.get(match.group(1), room).split()
        if room in (owner, *others, *rooms.MAKERS[tree]):
            return match.group(0)
        body = COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment.group(0)), match.group(2))
        for begin, end, _ in reversed(fields_of(body, owners)):
            if order.index(owner) > order.index(room):
                body = f'{body[:end]} __attribute__((deprecated("{match.group(1)} of {owner}"))){body[end:]}'
            elif not re.search(r",\s*$", body[:begin]):  # a const of the first name is one of them all
                body = f"{body[:begin]}const {body[begin:]}"
        return f"struct {match.group(1)} {{{body}}}"
    return STRUCT.sub(of_struct, text)


def look(top: pathlib.Path, marked: pathlib.Path, room: str, command: Command) -> set[str]:
    """What a source of a room, with what it includes, does that it may not."""
    source, arguments, folder = command
    if pathlib.Path(arguments[0]).name == "ccache":
        arguments = arguments[1:]
    run = subprocess.run([arguments[0], "-I", str(marked), *arguments[1:], "-fsyntax-only", "-Wdeprecated-declarations",
                          "-Wno-discarded-qualifiers", "-fdiagnostics-color=never"],
                         cwd=folder, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    bad: set[str] = set()
    if run.returncode != 0 and not WRITE.search(run.stderr):
        raise SystemExit(f"{source}: {run.stderr}")
    for line in run.stderr.splitlines():
        match = USE.match(line) or WRITE.match(line)
        if not match:
            if ": error: " in line:
                raise SystemExit(f"{source}: {line}")
            continue
        path = pathlib.Path(os.path.normpath(pathlib.Path(folder, match.group(1))))
        user = path.relative_to(marked if path.is_relative_to(marked) else top).as_posix()
        if user.startswith(f"{room}/"):  # headers of other rooms are looked at with these
            bad.add(f"{user} uses {match.group(2)} of {match.group(3)}" if match.re is USE else f"{user} writes {match.group(2)}")
    return bad


def check(top: pathlib.Path, commands: list[Command]) -> list[str]:
    bad: set[str] = set()
    jobs: list[tuple[pathlib.Path, pathlib.Path, str, Command]] = []
    with tempfile.TemporaryDirectory() as folder:
        for tree, owners in rooms.OWNERS.items():
            headers = {p.relative_to(top).as_posix(): p.read_text() for p in sorted((top / tree).rglob("*.h"))}
            bodies = {name: body for text in headers.values() for name, body in STRUCT.findall(text) if name in owners}
            bad |= {f"{tree} has no struct {name}" for name in owners if headers and name not in bodies}
            bad |= {f"{tree} has no room {room}" for words in owners.values() for room in words.split()
                    if headers and room not in rooms.ROOMS[tree]}
            if bad:
                continue
            fields = {name for body in bodies.values() for _, _, name in fields_of(COMMENT.sub("", body), owners)}
            names = re.compile(r"(?:->|\.)(?:" + "|".join(sorted(fields)) + r")\b")
            using = [f'"{name}"' for name, text in headers.items() if names.search(text)] if fields else []
            for room in rooms.ROOMS[tree]:
                marked = pathlib.Path(folder, tree.replace("/", "-"), room)
                for name, text in headers.items():
                    if (new := mark(text, room, tree)) != text:
                        (marked / name).parent.mkdir(parents=True, exist_ok=True)
                        (marked / name).write_text(new)
                for command in commands:
                    text = (top / command[0]).read_text()
                    if command[0].startswith(f"{tree}/{room}/") and fields and (
                            names.search(text) or any(name in text for name in using)):
                        jobs.append((top, marked, f"{tree}/{room}", command))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for found in pool.map(lambda job: look(*job), jobs):
                bad |= found
    return sorted(bad)


def commands_of(top: pathlib.Path, build: pathlib.Path) -> list[Command]:
    """How the sources of trees with rooms are compiled: each once."""
    found: dict[str, Command] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(os.path.normpath(pathlib.Path(entry["directory"], entry["file"])))
        if not path.is_relative_to(top) or not rooms.tree_of(path.relative_to(top).as_posix()):
            continue
        source = path.relative_to(top).as_posix()
        arguments = shlex.split(entry["command"])
        for option in ("-o", "-MQ", "-MF"):
            if option in arguments:
                at = arguments.index(option)
                del arguments[at:at + 2]
        keep = [a for a in arguments if a not in ("-c", "-MD") and not a.startswith(("-O", "-W")) and "_FORTIFY" not in a]
        found.setdefault(source, (source, keep, entry["directory"]))
    if not found:
        raise SystemExit(f"{build}/compile_commands.json names no source of {' or '.join(rooms.ROOMS)} in {top}")
    return list(found.values())


if __name__ == "__main__":
    root = rooms.source(sys.argv[1:2])
    sys.exit(rooms.report("fields", check(root, commands_of(root, pathlib.Path(sys.argv[2]).resolve()))))
