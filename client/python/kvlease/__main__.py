"""python -m kvlease: which library this is, and whether the daemon can be reached."""

from __future__ import annotations

import argparse
import json
import os
import sys

from kvlease import bench
from kvlease._kvlease import (
    Busy,
    Denied,
    Disconnected,
    Draining,
    Error,
    Timeout,
    Unreachable,
    VersionMismatch,
    connect,
    version,
)

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
    if isinstance(error, Denied):  # kvleased says what to do
        return f"{path}: {error}"
    for kind, remedy in _REMEDIES:
        if isinstance(error, kind):
            return f"{path}: {error}: {remedy}"
    return f"{path}: {error}: journalctl -u kvleased may say why"


def _answered(path: str, error: Error) -> bool:
    """Whether kvleased itself refused: the library names the socket where it wasn't reached."""
    unanswered = Disconnected, Timeout, Unreachable
    return not isinstance(error, unanswered) and path not in str(error)


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
    answered = error is None or _answered(shown, error)
    if as_json:
        said: dict[str, object] = {
            "version": version(),
            "socket": shown,
            "tenant": tenant,
            "reachable": answered,
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
        reached = "no" if not answered else "yes, but it refuses" if error else "yes"
        sys.stdout.write(
            f"version    {version()}\nsocket     {shown}\n"
            f"tenant     {tenant or 'unknown'}\nreachable  {reached}\n"
        )
        if error:
            sys.stderr.write(f"kvlease: {_sentence(shown, error)}\n")
    return 1 if error else 0


def _table(rows: list[bench.Row]) -> str:
    lines = ["lookup + release     Python          C   ratio  bound\n"]
    for row in rows:
        keys = f"{row.n_keys} key{'s' if row.n_keys > 1 else ''}"
        lines.append(
            f"{keys:<16} {row.python * 1e6:>7.2f} us {row.c * 1e6:>7.2f} us {row.ratio:>7.2f}"
            + (f" {row.bound:>6.2f}" if row.bound else "")
            + ("  missed\n" if row.is_missed else "\n")
        )
    return "".join(lines)


def _object(rows: list[bench.Row], rounds: int) -> str:
    """Times in nanoseconds."""
    return json.dumps(
        {
            "version": version(),
            "rounds": rounds,
            "rows": [
                {
                    "keys": row.n_keys,
                    "python_ns": round(row.python * 1e9, 1),
                    "c_ns": round(row.c * 1e9, 1),
                    "ratio": round(row.ratio, 3),
                    "bound": row.bound,
                }
                for row in rows
            ],
        }
    )


def _bench(path: str, rounds: int, is_json: bool, checks: bool) -> int:
    try:
        with connect(path) as connection:
            rows = bench.run(connection, rounds)
    except Error as error:
        sys.stderr.write(f"kvlease: {error}\n")
        return 1
    sys.stdout.write(_object(rows, rounds) + "\n" if is_json else _table(rows))
    return 2 if checks and any(row.is_missed for row in rows) else 0


def _count(text: str) -> int:
    n = int(text)
    if n < 1:
        raise ValueError(text)
    return n


_count.__name__ = "count"  # as argparse says it


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m kvlease",
        description="Show version, socket, tenant, and whether kvleased can be reached.",
        epilog="Exit status: 0: reached; 1: not, or refused; 2: wrong command line.",
    )
    parser.add_argument("--version", action="version", version=f"kvlease {version()}")
    parser.add_argument(
        "--socket",
        help="use this socket of a tenant (default: $KVLEASE_SOCKET, else /run/kvlease/sock)",
    )
    as_json = "print one JSON object instead of a table"
    parser.add_argument("--json", action="store_true", help=as_json)
    commands = parser.add_subparsers(dest="command", metavar="status | bench")
    status = commands.add_parser(
        "status", help="show whether kvleased can be reached (the default)"
    )
    measure = commands.add_parser(
        "bench",
        help="measure lookups from Python and from C",
        description="Measure lookup and release of 1 and 64 cached keys, from Python and from C in "
        "turns, and print medians. The command needs 64 pages of 4 KiB, in its own namespace.",
        epilog="Exit status: 0: measured; 1: not; 2: a bound was missed (--check), or wrong "
        "command line.",
    )
    measure.add_argument(
        "--rounds",
        type=_count,
        default=bench.ROUNDS,
        help="measure this many rounds of 200 calls (default: %(default)s)",
    )
    for command in (status, measure):  # after it, too
        command.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=as_json)
    measure.add_argument("--check", action="store_true", help="exit with 2 if a bound is missed")
    options = parser.parse_args()
    path = options.socket or os.environ.get("KVLEASE_SOCKET") or "/run/kvlease/sock"
    if options.command == "bench":
        return _bench(path, options.rounds, options.json, options.check)
    return _status(path, options.json)


if __name__ == "__main__":
    sys.exit(main())
