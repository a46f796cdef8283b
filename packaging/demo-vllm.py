"""What two vLLM processes of one tenant have in common, in seconds: demo.sh --engine vllm runs it.

demo-vllm.py SOCKET FOLDER: of kvleased; for the model and logs. The first run of all is vLLM as it
is, whose tokens all others must have.
"""

from __future__ import annotations

import contextlib
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/engines"))

import serving
from models import make_llama
from support import make_prompts

N_PROMPT = 3000
N_TOKENS = 60
# In one step, as ExampleConnector saves no prompt that is computed in several.
LENGTHS = ("--max-model-len", "4096", "--max-num-batched-tokens", "4096")
PROMPTS = [make_prompts(seed, 0, N_PROMPT)[0] for seed in range(3)]
OTHERS = [make_prompts(seed, 0, N_PROMPT)[0] for seed in range(10, 14)]
(WARM_UP,) = make_prompts(20, 0, 100)

Ask = Callable[[list[int], int], serving.Answer]


class Demo:
    """The table, and what it compares to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.page = serving.PAGE
        """Tokens in multiples of which prompts are found."""
        self._model = str(folder / "model")
        self._expected: dict[tuple[int, ...], list[int]] = {}
        self._rows = [("until the first token", "seconds", "tokens found", "same tokens")]
        self.is_as_expected = True
        make_llama(folder / "model")

    @contextlib.contextmanager
    def servers(self, name: str, n: int, *options: str) -> Iterator[list[serving.Server]]:
        """So many `vllm serve`, and where there are two the router before them."""
        print(f"  starting {name}", flush=True)
        with contextlib.ExitStack() as stack:
            log = self.folder / "vllm.log"
            started: list[serving.Server] = []
            for _ in range(n):
                started.append(serving.serve(log, self._model, *LENGTHS, *options))
                stack.callback(started[-1].kill)
            if n > 1:
                started.append(serving.route(log, *started))
                stack.callback(started[-1].kill)
            for server in started:
                server.wait()
            for server in started[:n]:
                server.ask(WARM_UP, 4)
            yield started

    def row(
        self, title: str, seconds: float, answers: list[tuple[list[int], serving.Answer]]
    ) -> None:
        """One of the table, of prompts and their answers. All full pages are to be found, and where
        it is cold, none."""
        is_same = is_found = True
        for prompt, answer in answers:
            expected = self._expected.setdefault(tuple(prompt), answer.tokens)
            is_same &= answer.tokens == expected
            full = (answer.n_prompt - 1) // self.page * self.page
            is_found &= answer.n_found == (0 if title.endswith("cold") else full)
        self.is_as_expected &= is_same and is_found
        found = f"{answers[0][1].n_found} of {answers[0][1].n_prompt}"
        self._rows.append((title, f"{seconds:.2f}", found, "yes" if is_same else "NO"))

    def first_tokens(self, title: str, ask: Ask, prompts: list[list[int]]) -> None:
        """A row of the median of several prompts."""
        seconds, answers = [], []
        for prompt in prompts:
            started = time.monotonic()
            answers.append((prompt, ask(prompt, N_TOKENS)))
            seconds.append(answers[-1][1].times[0] - started)
        self.row(title, statistics.median(seconds), answers)

    def show(self) -> None:
        """Prints the table."""
        for title, *columns in self._rows:
            print(f"{title:<54}{columns[0]:>9}{columns[1]:>15}{columns[2]:>13}")


def on_kvlease(demo: Demo, socket: str) -> None:
    """Both processes of one tenant."""
    with demo.servers("two vLLM with kvlease", 2, *serving.kvlease(socket)) as servers:
        prefill, decode, router = servers
        demo.first_tokens("kvlease: cold", prefill.ask, PROMPTS)
        demo.first_tokens("kvlease: again, same process", prefill.ask, PROMPTS)
        demo.first_tokens("kvlease: again, second process", decode.ask, PROMPTS)
        demo.first_tokens("kvlease: prefill here, decode there", router.ask, OTHERS[:3])

        killed = []

        def kill() -> None:
            killed.append(time.monotonic())
            decode.kill()

        prompt = OTHERS[3]
        answer = router.ask(prompt, N_TOKENS, when=(N_TOKENS // 3, kill))
        # The request that went on had the tokens before as its prompt.
        next_token = answer.times[answer.n_prompt - len(prompt)]
        demo.row(
            "kvlease: SIGKILL while it decodes, next token",
            next_token - killed[0],
            [(prompt, answer)],
        )

        decode.start()
        decode.wait()
        demo.first_tokens("kvlease: started again, its first request", decode.ask, PROMPTS[:1])


def main() -> int:
    """1 where tokens differ, or others are found than should be."""
    socket, folder = sys.argv[1], Path(sys.argv[2])
    demo = Demo(folder)
    with demo.servers("vLLM as it is", 1) as (alone,):
        demo.first_tokens("vLLM alone: cold", alone.ask, PROMPTS + OTHERS)
        demo.first_tokens("vLLM alone: again, same process", alone.ask, PROMPTS)
    copying = serving.transfer("ExampleConnector", shared_storage_path=str(folder / "copies"))
    with demo.servers("two vLLM with its ExampleConnector", 2, *copying) as (*_, router):
        demo.first_tokens("ExampleConnector: prefill here, decode there", router.ask, OTHERS[:3])
    on_kvlease(demo, socket)
    print()
    demo.show()
    return 0 if demo.is_as_expected else 1


if __name__ == "__main__":
    # So that the servers end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"demo: {error}")
