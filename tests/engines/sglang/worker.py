"""SGLang on the CPU with a small model of random weights, as support.Engine runs it."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

from sglang.srt.entrypoints.engine import Engine as Server

# SGLang starts its processes anew, which import it again: half a minute of a processor each.
multiprocessing.set_start_method("fork", force=True)
multiprocessing.set_start_method = lambda *_, **__: None  # type: ignore[assignment]

# What a CPU needs, and as little as possible of the rest.
ARGUMENTS: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "disable_cuda_graph": True,
    "skip_tokenizer_init": True,
    "sleep_on_idle": True,
    "mem_fraction_static": 0.1,
    "max_total_tokens": 4096,
    "page_size": 16,
    "random_seed": 1,
}


class Engine:
    """What a test may call."""

    def __init__(self, settings: dict[str, Any]) -> None:
        arguments = ARGUMENTS | {"model_path": settings["model"]} | settings.get("sglang", {})
        if "kvlease" in settings:
            arguments |= {
                "enable_unified_cache_external_linker": True,
                "unified_cache_external_linker_backend": "dynamic",
                "unified_cache_external_linker_config": {
                    "linker": "Linker",
                    "linker_module_path": "kvlease.sglang",
                    "linker_extra_config": settings["kvlease"],
                },
            }
        self.server = Server(**arguments)
        self._stats = {"hit_tokens": 0, "asked_tokens": 0}

    def run(self, prompts: list[list[int]], n_tokens: int, keeps: bool = False) -> dict[str, Any]:
        """One after the other, each in an empty cache of the engine unless it keeps its own, with
        the seconds that it took. first: those of each prompt."""
        tokens, first, errors = [], [], []
        started = time.monotonic()
        for prompt in prompts:
            if not keeps:
                self.server.flush_cache()
            began = time.monotonic()
            sampling = {"temperature": 0, "max_new_tokens": n_tokens, "ignore_eos": True}
            answer = self.server.generate(input_ids=prompt, sampling_params=sampling)
            first.append(time.monotonic() - began)
            tokens.append(answer["output_ids"])
            reason = answer["meta_info"]["finish_reason"]
            errors += [reason] if reason["type"] == "abort" else []
            self._stats["hit_tokens"] += answer["meta_info"]["cached_tokens"]
            self._stats["asked_tokens"] += len(prompt)
        seconds = time.monotonic() - started
        if not keeps:
            # Returns when all pages are stored.
            self.server.flush_cache()
        return {"tokens": tokens, "errors": errors, "first": first, "seconds": seconds}

    def scheduler(self) -> int:
        """The process that computes."""
        (found,) = [
            each.pid
            for each in multiprocessing.active_children()
            if each.pid and "scheduler" in Path(f"/proc/{each.pid}/cmdline").read_text()
        ]
        return found

    def stats(self) -> dict[str, int]:
        """Of what was found."""
        return self._stats

    def stop(self) -> None:
        """Ends the engine; what it held is given back."""
        self.server.shutdown()

    def failed(self, error: Exception) -> dict[str, str]:
        """The answer to a call that ended with it."""
        return {"error": repr(error)}
