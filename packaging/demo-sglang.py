"""What servers of SGLang have in common, in seconds: demo.sh --engine sglang runs it.

demo-sglang.py SOCKET FOLDER: of kvleased; for the model. All servers must give the tokens of the
first one, which is SGLang as it is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/engines"))

from models import make_llama
from support import Engine, forks, make_prompts

WORKER = Path(sys.path[0]) / "sglang/worker.py"
N_PROMPT = 3000
N_TOKENS = 16
PAGE = 16


class Demo:
    """The table."""

    def __init__(self, socket: str, folder: str) -> None:
        self._settings = {"model": f"{folder}/model"}
        self._shared = self._settings | {"kvlease": {"socket": socket}}
        self._expected: dict[int, Any] = {}
        self._rows = [("until the first token", "seconds", "tokens found", "same tokens")]
        self.is_as_expected = True
        self.server: Engine | None = None

    def end(self) -> None:
        """SIGKILL of the server."""
        if self.server is not None:
            self.server.kill()

    def start(self, with_kvlease: bool = True) -> None:
        """Another server, warm by a short prompt; the one before is killed."""
        self.end()
        settings = self._shared if with_kvlease else self._settings
        self.server = Engine(WORKER, settings)
        self.server.wait()
        short = make_prompts(9, 0, 4 * PAGE)
        for keeps in (False, False, True, True):
            self.server.call("run", short, 2, keeps)

    def ask(self, name: str, seed: int, wanted: int, *, keeps: bool = False) -> None:
        """Asks the server, which must find `wanted` tokens. keeps: also in its own cache."""
        assert self.server
        prompts = make_prompts(seed, 0, N_PROMPT)
        before = self.server.call("stats")["hit_tokens"]
        done = self.server.call("run", prompts, 1, keeps)
        found = self.server.call("stats")["hit_tokens"] - before
        tokens = self.server.call("run", prompts, N_TOKENS, True)["tokens"]
        same = tokens == self._expected.setdefault(seed, tokens)
        self.is_as_expected &= same and found == wanted
        self._rows.append((name, f"{done['first'][0]:.2f}", f"{found:,}", "yes" if same else "NO"))

    def show(self) -> None:
        """Prints it."""
        for name, *cells in self._rows:
            print(f"{name:46} {cells[0]:>9} {cells[1]:>13}  {cells[2]}")


def main() -> int:
    """1 where tokens differ, or others are found than should be."""
    socket, folder = sys.argv[1:]
    # Threads that wait for each other on a busy machine take a second for a token.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    forks.set_forkserver_preload(["kvlease.sglang", "sglang.srt.models.registry"])
    # SGLang's attention for CPUs computes the whole text also where its beginning is found: a model
    # of which that is the smaller part.
    sizes = {"hidden_size": 512, "intermediate_size": 2048, "head_dim": 32, "num_hidden_layers": 6}
    make_llama(Path(folder) / "model", **sizes)
    findable = (N_PROMPT - 1) // PAGE * PAGE
    demo = Demo(socket, folder)
    demo.start(with_kvlease=False)
    demo.ask("SGLang alone: cold", 0, 0)
    demo.ask("SGLang alone: again, the same server", 0, findable, keeps=True)
    demo.start(with_kvlease=False)
    demo.ask("SGLang alone: another server", 0, 0)
    demo.start()
    demo.ask("kvlease: cold", 0, 0)
    demo.start()
    demo.ask("kvlease: another server, the first was killed", 0, findable)
    demo.ask("kvlease: another prompt", 1, 0)
    demo.end()
    print()
    demo.show()
    return 0 if demo.is_as_expected else 1


if __name__ == "__main__":
    sys.exit(main())
