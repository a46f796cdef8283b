"""python -m kvlease.transformers: the command line of transformers, on pages of kvlease."""

from __future__ import annotations

import argparse
import sys

import transformers
from transformers.cli import transformers as command_line

from kvlease._command import make_parser
from kvlease.transformers.engine import enable


def _parser() -> argparse.ArgumentParser:
    parser = make_parser(
        "kvlease.transformers",
        "serve [MODEL] --continuous-batching [ARGUMENT...]",
        "Run `transformers serve` with a KV cache on pages of kvlease. OPTIONs are of kvlease, "
        "ARGUMENTs of transformers (serve --help).",
        "help(kvlease.transformers.enable) describes each option. Exit status: that of "
        "transformers; 2: wrong command line.",
    )
    parser.add_argument(
        "--device",
        metavar="UUID",
        help="a GPU, or 'host' (default: the daemon's; for a model on the CPU: host)",
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
