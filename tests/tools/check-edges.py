#!/usr/bin/env python3
"""Fails when a file includes a header of a room it may not enter (docs/develop/ARCHITECTURE.md, "Map of the source")."""
import os
import pathlib
import re
import sys

import rooms

# room -> rooms whose headers it may include; longest matching prefix wins.
EDGES = {
    "base": {"base"},
    "proto": {"proto", "base"},
    "policy": {"policy", "base"},
    "gpu": {"gpu", "base"},
    "client/lib": {"client/lib", "proto", "gpu", "base"},
    # States of llama.cpp in pages: a user of the library.
    "client/llama": {"client/llama", "client/lib"},
    "client/trace": {"client/trace", "policy", "base"},
    # Doctor asks the servers that hosts share (daemon/remote/ask/ask.h), like kvleased.
    "client/ctl": {"client/ctl", "client/lib", "client/trace", "daemon/remote", "policy", "proto", "gpu", "base"},
    # Sockets and connections of the two HTTP servers.
    "client/http": {"client/http", "base"},
    "client/exporter": {"client/exporter", "client/http", "client/lib", "proto", "base"},
    "client/events": {"client/events", "client/http", "client/lib", "base"},
    # An example includes only what a user has: the public header.
    "client/examples": {"client/examples"},
    # The decoder also finds the GPU's driver, by the loader alone.
    "client/examples/decoder": {"client/examples/decoder", "client/examples", "gpu"},
    # The Python package uses only the public headers.
    "client/python": {"client/python", "client/lib", "client/llama"},
    # The daemon's state doesn't depend on sockets, the loop or the configuration file.
    "daemon/core": {"daemon/core", "daemon/tier", "policy", "gpu", "proto", "base"},
    # Tiers of cold pages don't depend on the daemon's state.
    "daemon/tier": {"daemon/tier", "gpu", "base"},
    # The client of a shared Redis or Valkey cluster doesn't depend on pages and tenants.
    "daemon/remote": {"daemon/remote", "daemon/remote/protocol", "base"},
    # A store whose client is another process; and that process, which has the network.
    "daemon/relay": {"daemon/relay", "daemon/remote", "proto", "base"},
    "daemon/network": {"daemon/network", "daemon/relay", "daemon/remote", "proto", "base"},
    # The servers' protocol: no I/O. Only daemon/remote needs it.
    "daemon/remote/protocol": {"daemon/remote/protocol", "base"},
    # Exchanging pages with other hosts, above the daemon's state: it plays a client of it.
    "daemon/exchange": {"daemon/exchange", "daemon/exchange/format", "daemon/core", "daemon/remote", "policy", "proto", "base"},
    # The exchanged format doesn't depend on its transport, nor on the daemon's state.
    "daemon/exchange/format": {"daemon/exchange/format", "policy", "base"},
    # The small parent of kvleased --keep doesn't depend on what it stores.
    "daemon/keep": {"daemon/keep", "base"},
    # The process for calls that a client could block doesn't depend on what it closes.
    "daemon/reap": {"daemon/reap", "base"},
    "daemon/server": {"daemon/server", "daemon/keep", "daemon/reap", "daemon/core", "daemon/tier", "daemon/exchange", "daemon/exchange/format",
                      "daemon/relay", "daemon/remote", "policy", "gpu", "proto", "base"},
    "tests": None,  # anything
    "lab": None,
}
# policy/ is pure, and so is daemon/remote/protocol; daemon/core has no loop, base/ is libc only.
FORBIDDEN_SYSTEM = {
    "policy": re.compile(r"<(uv|time|sys/|fcntl|unistd|pthread|systemd/)"),
    "base": re.compile(r"<(uv|protobuf-c|systemd/|openssl)"),
    "daemon/core": re.compile(r"<(uv|systemd/|sys/socket)"),
    "daemon/tier": re.compile(r"<(uv|systemd/|sys/socket)"),
    "daemon/remote": re.compile(r"<(uv|systemd/|protobuf-c)"),
    "daemon/remote/protocol": re.compile(r"<(uv|systemd/|protobuf-c|openssl|time|sys/|fcntl|unistd|pthread)"),
    "daemon/exchange": re.compile(r"<(uv|systemd/|protobuf-c|sys/socket)"),
    "daemon/exchange/format": re.compile(r"<(uv|systemd/|protobuf-c|time|sys/(?!uio)|fcntl|unistd|pthread)"),
    "gpu": re.compile(r"<(uv|systemd/|protobuf-c)"),
}
# policy/ may write sentences by snprintf(), and uses nothing else of <stdio.h>.
STDIO = re.compile(r"\b(FILE\b|v?f?printf\(|v?[fd]printf\(|f?puts\(|fopen\(|fwrite\(|perror\(|std(in|out|err)\b)")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def room_of(path: str) -> str:
    for room in sorted(EDGES, key=len, reverse=True):
        if path == room or path.startswith(room + "/"):
            return room
    return ""


def sources(root: pathlib.Path):
    """Every .c and .h below root; build folders (of any name) and hidden folders are left out."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(s for s in subfolders if not s.startswith("."))
        if "meson-private" in subfolders:
            subfolders.clear()
            continue
        for name in sorted(files):
            if name.endswith((".c", ".h")):
                yield pathlib.Path(folder, name)


def check(root: pathlib.Path) -> tuple[list[str], list[str]]:
    """Violations of EDGES and of FORBIDDEN_SYSTEM; and those between rooms of one tree."""
    bad = []
    doors = []
    for path in sources(root):
        rel = path.relative_to(root).as_posix()
        room = room_of(rel)
        tree = rooms.tree_of(rel)
        if tree and rooms.height(tree, rel) < 0:
            bad.append(f"{rel}: its folder isn't listed in tests/tools/rooms.py")
            continue
        if not room:
            bad.append(f"{rel}: in no room of docs/develop/ARCHITECTURE.md")
            continue
        for no, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if room == "policy" and STDIO.search(line):
                bad.append(f"{rel}:{no}: policy/ has no input or output")
            if not match:
                continue
            kind, target = match.groups()
            if kind == "<":
                pattern = FORBIDDEN_SYSTEM.get(room)
                if pattern and pattern.match(f"<{target}"):
                    bad.append(f"{rel}:{no}: {room}/ must not include <{target}>")
                continue
            allowed = EDGES[room]
            if allowed is None or target == "kvlease-version.h":
                continue
            if "/" not in target:
                bad.append(f'{rel}:{no}: "{target}" must be named from the root of the tree')
            elif room_of(target) not in allowed:
                bad.append(f"{rel}:{no}: {room}/ may not include {target}")
            elif reason := rooms.door(rel, target):
                doors.append(f"{rel} includes {target}: {reason}")
            elif target.endswith("-impl.h") and rooms.tree_of(target) and (
                    pathlib.PurePosixPath(rel).parent != pathlib.PurePosixPath(target).parent):
                doors.append(f"{rel} includes {target}: it is private to its room")
    return bad, doors


if __name__ == "__main__":
    top = rooms.source(sys.argv[1:])
    violations, of_doors = check(top)
    print("\n".join(violations) if violations else "include edges: ok")
    status = rooms.report("includes", of_doors)
    sys.exit(1 if violations else status)
