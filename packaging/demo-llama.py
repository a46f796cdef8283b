"""What processes of llama.cpp have in common, in seconds: demo.sh --engine llama runs it.

demo-llama.py SOCKET FOLDER: of kvleased; for the model. The first process is llama-cpp-python as it
is, whose tokens all others must have. demo-llama.py FOLDER PROMPT TOKENS [SOCKET] is one process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/engines"))

import llama_cpp
from gguf_models import make_model
from support import make_prompts

from kvlease.llama import Llama, Options

N_PROMPT = 2500
N_TOKENS = 32
CHUNK = 256


def compute(folder: str, seed: int, n_tokens: int, socket: str | None) -> None:
    """Prints the seconds of each token, as they come, and what was found."""
    arguments = {"n_ctx": 4096, "n_threads": 1, "n_threads_batch": 1, "verbose": False}
    model = f"{folder}/model.gguf"
    if socket:
        llama: Any = Llama(model, kvlease=Options(socket=socket), **arguments)
    else:
        llama = llama_cpp.Llama(model, **arguments)
    (prompt,) = make_prompts(seed, 0, N_PROMPT)
    began = time.monotonic()
    for i, token in enumerate(llama.generate(prompt, temp=0.0)):
        line = {"token": int(token), "seconds": time.monotonic() - began}
        if socket:
            line["found"] = llama.kvlease_stats.hit_tokens
        print(json.dumps(line), flush=True)
        if i + 1 == n_tokens:
            break
    llama.close()


class Demo:
    """The table."""

    def __init__(self, socket: str, folder: str) -> None:
        self._socket, self._folder = socket, folder
        self._expected: dict[int, list[int]] = {}
        self._rows = [("until the first token", "seconds", "tokens found", "same tokens")]
        self.is_as_expected = True

    def run(self, name: str, seed: int, wanted: int, with_kvlease: bool = True) -> None:
        """A process, which must find `wanted` tokens."""
        lines = [json.loads(line) for line in self._start(seed, with_kvlease).stdout or ()]
        tokens = [line["token"] for line in lines]
        same = tokens == self._expected.setdefault(seed, tokens) and len(tokens) == N_TOKENS
        found = lines[0].get("found", 0) if lines else 0
        self.is_as_expected &= same and found == wanted
        seconds = f"{lines[0]['seconds']:.2f}" if lines else "-"
        self._rows.append((name, seconds, f"{found:,}", "yes" if same else "NO"))

    def run_and_kill(self, seed: int) -> None:
        """A process that dies by SIGKILL after some tokens."""
        process = self._start(seed, True)
        assert process.stdout
        for _ in range(N_TOKENS // 4):
            process.stdout.readline()
        process.kill()
        process.wait()

    def _start(self, seed: int, with_kvlease: bool) -> subprocess.Popen[str]:
        words = [sys.executable, __file__, self._folder, str(seed), str(N_TOKENS)]
        words += [self._socket] if with_kvlease else []
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def show(self) -> None:
        """Prints it."""
        for name, *cells in self._rows:
            print(f"{name:46} {cells[0]:>9} {cells[1]:>13}  {cells[2]}")


def main() -> int:
    """1 where tokens differ, or others are found than should be."""
    socket, folder = sys.argv[1:]
    make_model(Path(folder) / "model.gguf", size=512, layers=6)
    findable = (N_PROMPT - 1) // CHUNK * CHUNK
    demo = Demo(socket, folder)
    demo.run("llama.cpp alone: cold", 0, 0, with_kvlease=False)
    demo.run("kvlease: cold", 0, 0)
    demo.run("kvlease: again, another process", 0, findable)
    demo.run("llama.cpp alone: another prompt", 1, 0, with_kvlease=False)
    demo.run_and_kill(1)
    demo.run("kvlease: after a process that was killed", 1, findable)
    print()
    demo.show()
    return 0 if demo.is_as_expected else 1


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(main())
    compute(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), (sys.argv[4:] or [None])[0])
