"""python -m kvlease.transformers: the command line of transformers, on pages of kvlease."""

from __future__ import annotations

import argparse
import sys

import transformers
from transformers.cli import transformers as command_line

import kvlease
from kvlease.transformers.engine import enable


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kvlease.transformers",
        usage="%(prog)s [OPTION...] serve [MODEL] --continuous-batching [ARGUMENT...]",
        description="Run `transformers serve` with a KV cache on pages of kvlease. OPTIONs are of "
        "kvlease, ARGUMENTs of transformers (serve --help).",
        epilog="help(kvlease.transformers.enable) describes each option. Exit status: that of "
        "transformers; 2: wrong command line.",
    )
    parser.add_argument("--version", action="version", version=f"kvlease {kvlease.__version__}")
    parser.add_argument(
        "--socket",
        help="use this socket of a tenant (default: $KVLEASE_SOCKET, else /run/kvlease/sock)",
    )
    parser.add_argument("--client-name", metavar="NAME", help="name in kvleasectl clients")
    parser.add_argument(
        "--device",
        metavar="UUID",
        help="a GPU, or 'host' (default: the daemon's; for a model on the CPU: host)",
    )
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
        "--on-loss",
        choices=["error", "continue"],
        default="error",
        help="end with an error, or continue, if kvleased doesn't return (default: %(default)s)",
    )
    parser.add_argument(
        "--reconnect",
        metavar="SECONDS",
        type=float,
        default=60,
        help="wait this long for kvleased to return (default: %(default)s)",
    )
    parser.add_argument(
        "--remote-timeout",
        metavar="SECONDS",
        type=float,
        default=10,
        help="wait this long for pages of other hosts (default: %(default)s; 0: don't wait)",
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


def main() -> None:
    """Ends as the command line of transformers does."""
    parser = _parser()
    options = vars(parser.parse_args())
    command, arguments = options.pop("command"), options.pop("arguments")
    if "--help" not in arguments and "--continuous-batching" not in arguments:
        parser.error(f"{command} needs --continuous-batching: nothing else computes on pages")
    enable(transformers.PreTrainedModel, **options)
    sys.argv = ["transformers", command, *arguments]
    command_line.main()


if __name__ == "__main__":
    main()
