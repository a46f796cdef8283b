"""llama-cpp-python with a small model of random weights, as support.Engine runs it."""

from __future__ import annotations

import logging
import sys
import time
from array import array
from dataclasses import asdict
from typing import Any

import llama_cpp

import kvlease.llama


class Engine:
    """What a test may call."""

    def __init__(self, settings: dict[str, Any]) -> None:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO)
        arguments = {"n_ctx": 4096, "n_threads": 1, "n_threads_batch": 1, "verbose": False}
        arguments |= settings.get("llama", {})
        self.llama: Any
        if "kvlease" in settings:
            given = settings["kvlease"] | {"salt": settings["kvlease"].get("salt", "").encode()}
            options = kvlease.llama.Options(**given)
            self.llama = kvlease.llama.Llama(settings["model"], kvlease=options, **arguments)
        else:
            self.llama = llama_cpp.Llama(settings["model"], **arguments)

    def run(
        self, prompts: list[list[int]], n_tokens: int, continues: bool = False
    ) -> dict[str, Any]:
        """One after the other, each in an empty context unless it continues, with the seconds that
        it took. first: those of the first token of each."""
        tokens: list[list[int]] = []
        first: list[float] = []
        started = time.monotonic()
        for prompt in prompts:
            if not continues:
                self.llama.reset()
            began = time.monotonic()
            answer: list[int] = []
            for token in self.llama.generate(list(prompt), temp=0.0):
                first += [time.monotonic() - began] if not answer else []
                answer.append(int(token))
                if len(answer) == n_tokens:
                    break
            tokens.append(answer)
        seconds = time.monotonic() - started
        return {"tokens": tokens, "errors": [], "first": first, "seconds": seconds}

    def identity(self) -> str:
        """Of its pages."""
        return str(self.llama._store._context.info["identity"].hex())

    def time_load(self, prompt: list[int]) -> float:
        """Seconds that loading takes in an empty context."""
        tokens = array("i", prompt[:-1])
        began = time.monotonic()
        assert self.llama._store.load(tokens, 0) > 0
        seconds = time.monotonic() - began
        self.llama.reset()
        return seconds

    def stats(self) -> dict[str, int]:
        """Of what was found."""
        return asdict(self.llama.kvlease_stats)

    def stop(self) -> None:
        """Ends the engine; what it held is given back."""
        self.llama.close()

    def failed(self, error: Exception) -> dict[str, str]:
        """The answer to a call that ended with it."""
        return {"error": repr(error)}
