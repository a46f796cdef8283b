"""python -m kvlease: which library this is, and whether the daemon can be reached."""

from __future__ import annotations

import argparse
import os
import sys

from kvlease import bench
from kvlease._kvlease import Error, connect, version


def _status(path: str) -> int:
    out = sys.stdout.write
    out(f"version    {version()}\nsocket     {path}\n")
    try:
        with connect(path, timeout=5) as connection:
            out(f"tenant     {connection.tenant}\nreachable  yes\n")
    except Error as error:
        out(f"tenant     unknown\nreachable  no: {error}\n")
        return 1
    return 0


def _bench(path: str, rounds: int) -> int:
    try:
        with connect(path) as connection:
            rows = bench.run(connection, rounds)
    except Error as error:
        sys.stderr.write(f"kvlease: {error}\n")
        return 1
    sys.stdout.write("lookup + release   Python       C   ratio\n")
    for n, python, c in rows:
        keys = f"{n} key{'s' if n > 1 else ''}"
        sys.stdout.write(
            f"{keys:<16} {python * 1e6:>6.2f} us {c * 1e6:>4.2f} us {python / c:>6.2f}\n"
        )
    return 0


def main() -> int:
    """Exit status: 0: reached; 1: not."""
    parser = argparse.ArgumentParser(
        prog="python -m kvlease",
        description="Says version, socket, tenant, and whether kvleased can be reached.",
        epilog="Exit status: 0: reached; 1: not; 2: wrong command line.",
    )
    parser.add_argument("--socket", help="default: $KVLEASE_SOCKET, else /run/kvlease/sock")
    parser.add_argument("--rounds", type=int, default=20000, help="of bench (default: 20000)")
    parser.add_argument(
        "command",
        nargs="?",
        choices=["status", "bench"],
        default="status",
        help="bench: lookup and release of 1 and 64 keys, beside the C library",
    )
    options = parser.parse_args()
    path = options.socket or os.environ.get("KVLEASE_SOCKET") or "/run/kvlease/sock"
    if options.command == "bench":
        return _bench(path, max(1, options.rounds))
    return _status(path)


if __name__ == "__main__":
    sys.exit(main())
