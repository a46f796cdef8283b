"""python -m kvlease: which library this is, and whether the daemon can be reached."""

from __future__ import annotations

import argparse
import json
import os
import sys

from kvlease import bench
from kvlease._kvlease import Busy, Draining, Error, Timeout, VersionMismatch, connect, version

_TIMEOUT_SECONDS = 5.0  # of the connection. Not tuned.

# Of what the library's own sentence doesn't end in.
_REMEDIES: list[tuple[type[Error], str]] = [
    (Busy, "end some of the processes that kvleasectl clients shows"),
    (Draining, "wait until kvleasectl status says that it serves again"),
    (Timeout, "kvleasectl status says whether it is stopped or overloaded"),
    (VersionMismatch, "install kvlease in the version of kvleased --version"),
]


def _sentence(path: str, error: Error) -> str:
    """What went wrong, at which socket, and what to do about it."""
    if path in str(error):  # the library knows both
        return str(error)
    for kind, remedy in _REMEDIES:
        if isinstance(error, kind):
            return f"{path}: {error}: {remedy}"
    return f"{path}: {error}: journalctl -u kvleased may say why"


def _printable(text: str) -> str:
    """Paths may have bytes that are no characters."""
    return text.encode(errors="backslashreplace").decode()


def _status(path: str, as_json: bool) -> int:
    tenant, error = None, None
    try:
        with connect(path, timeout=_TIMEOUT_SECONDS) as connection:
            tenant = connection.tenant
    except Error as caught:
        error = caught
    shown = _printable(path)
    if as_json:
        said: dict[str, object] = {
            "version": version(),
            "socket": shown,
            "tenant": tenant,
            "reachable": error is None,
            "error": None,
        }
        if error:
            said["error"] = {
                "reason": error.reason,
                "code": error.code,
                "sentence": _sentence(shown, error),
            }
        sys.stdout.write(json.dumps(said, indent=2) + "\n")
    else:
        sys.stdout.write(
            f"version    {version()}\nsocket     {shown}\n"
            f"tenant     {tenant or 'unknown'}\nreachable  {'no' if error else 'yes'}\n"
        )
        if error:
            sys.stderr.write(f"kvlease: {_sentence(shown, error)}\n")
    return 1 if error else 0


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
    """Exit status: 0: reached; 1: not; 2: wrong command line."""
    parser = argparse.ArgumentParser(
        prog="python -m kvlease",
        description="Says version, socket, tenant, and whether kvleased can be reached.",
        epilog="Exit status: 0: reached; 1: not; 2: wrong command line.",
    )
    parser.add_argument("--version", action="version", version=f"kvlease {version()}")
    parser.add_argument("--socket", help="default: $KVLEASE_SOCKET, else /run/kvlease/sock")
    parser.add_argument("--json", action="store_true", help="of status: as a JSON object")
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
        if options.json:
            parser.error("--json goes with status alone")
        return _bench(path, max(1, options.rounds))
    return _status(path, options.json)


if __name__ == "__main__":
    sys.exit(main())
