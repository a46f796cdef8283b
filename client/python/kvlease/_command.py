"""The command line of an adapter, which hands all arguments behind `serve` to its engine's own."""

from __future__ import annotations

import argparse

import kvlease


def make_parser(module: str, usage: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Knows the options of all adapters, and `serve` with its arguments. usage: of the arguments.
    description, epilog: of argparse."""
    prog = f"python -m {module}"
    parser = argparse.ArgumentParser(
        prog=prog, usage=f"{prog} [OPTION...] {usage}", description=description, epilog=epilog
    )
    parser.add_argument("--version", action="version", version=f"kvlease {kvlease.__version__}")
    parser.add_argument(
        "--socket",
        help="use this socket of a tenant (default: $KVLEASE_SOCKET, else /run/kvlease/sock)",
    )
    parser.add_argument("--client-name", metavar="NAME", help="name in kvleasectl clients")
    parser.add_argument(
        "--weights",
        metavar="NAME",
        help="name of the weights (default: a digest of all their bytes)",
    )
    parser.add_argument(
        "--salt",
        metavar="TEXT",
        type=str.encode,
        default=b"",
        help="share pages only with processes that have the same salt",
    )
    parser.add_argument(
        "--verify",
        metavar="SHARE",
        type=float,
        default=0,
        help="compute the pages of this share of found prompts, 0 to 1, again, and compare "
        "(default: %(default)s)",
    )
    parser.add_argument("command", choices=["serve"], help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser
