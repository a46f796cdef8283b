"""python -m kvlease.llama: the server of llama-cpp-python, on pages of kvlease."""

from __future__ import annotations

import argparse
import sys

import llama_cpp
from llama_cpp.server import __main__ as command_line

from kvlease._command import make_parser
from kvlease.llama.engine import ServedLlama
from kvlease.llama.store import Options


def _parser() -> argparse.ArgumentParser:
    defaults = Options()
    parser = make_parser(
        "kvlease.llama",
        "serve [ARGUMENT...]",
        "`python -m llama_cpp.server` with all its arguments, and a KV cache kept by kvleased. "
        "OPTIONs are of kvlease, ARGUMENTs of llama_cpp.server (serve --help). Requests can't ask "
        "for logprobs.",
        "Exit status: that of llama_cpp.server; 2: wrong command line.",
    )
    parser.add_argument(
        "--chunk-tokens",
        metavar="N",
        type=int,
        default=defaults.chunk_tokens,
        help="tokens of a page, 16 to 1024 (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=defaults.timeout,
        help="how long a call may wait for kvleased (default: %(default)s)",
    )
    return parser


def main() -> None:
    """Ends as llama_cpp.server does."""
    options = vars(_parser().parse_args())
    del options["command"]
    sys.argv = ["python -m kvlease.llama serve", *options.pop("arguments")]
    ServedLlama.kvlease_options = Options(**options)
    # The server makes its models by this name.
    llama_cpp.Llama = ServedLlama
    command_line.main()


if __name__ == "__main__":
    main()
