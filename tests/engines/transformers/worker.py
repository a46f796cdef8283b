"""transformers with a small model of random weights, as support.Engine runs it."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import asdict
from typing import Any

import torch
from support import TINY_LLAMA
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

import kvlease.transformers


def make_model(seed: int = 0, attention: str = "sdpa", **settings: Any) -> LlamaForCausalLM:
    """With random weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(**TINY_LLAMA | settings)
    config._attn_implementation = attention
    return LlamaForCausalLM(config).eval()


class Engine:
    """What a test may call."""

    def __init__(self, settings: dict[str, Any]) -> None:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO)
        torch.set_num_threads(1)
        with torch.device(settings.get("device", "cpu")):
            self.model = make_model(**settings.get("model", {}))
        self.model.to(getattr(torch, settings.get("dtype", "float32")))
        self.do(settings.get("change", ""))
        if "kvlease" in settings:
            options = settings["kvlease"]
            options["salt"] = options.get("salt", "").encode()
            kvlease.transformers.enable(self.model, **options)
        batching = {"num_blocks": 512, "page_size": 16, "max_batch_tokens": 256}
        generation = {"do_sample": False, "eos_token_id": 511, "pad_token_id": 0}
        self.manager = self.model.init_continuous_batching(
            generation_config=GenerationConfig(**generation | settings.get("generation", {})),
            continuous_batching_config=ContinuousBatchingConfig(
                **batching | settings.get("batching", {})
            ),
        )
        self.manager.start()

    def add(self, prompt: list[int], n_tokens: int) -> str:
        """Begins a request; its id."""
        return self.manager.add_request(prompt, max_new_tokens=n_tokens)

    def do(self, program: str) -> None:
        """Runs statements, which have `self`."""
        exec(program, {"self": self, "torch": torch})

    def session(self, program: str) -> None:
        """Runs statements between two sessions of the manager."""
        self.manager.stop(block=True, keep_for_next_session=True)
        self.do(program)
        self.manager.start()

    def pause(self, program: str) -> None:
        """Runs statements in a pause of the manager."""
        with self.manager.pause():
            self.do(program)

    def results(self, requests: list[str]) -> list[dict[str, Any]]:
        """Of requests that were added."""
        results: dict[str, Any] = {}
        while len(results) < len(requests):
            if result := self.result(1):
                results[result["id"]] = result
        return [results[request] for request in requests]

    def cancel(self, request: str) -> None:
        """Ends it early."""
        self.manager.cancel_request(request)

    def result(self, timeout: float) -> dict[str, Any] | None:
        """The next request that is over."""
        result = self.manager.get_result(timeout=timeout)
        if result is None:
            fatal = self.manager.background_thread_status.fatal_error
            return {"fatal": str(fatal)} if fatal else None
        return {"id": result.request_id, "tokens": result.generated_tokens, "error": result.error}

    def run(self, prompts: list[list[int]], n_tokens: int) -> dict[str, Any]:
        """All of them at once, with the seconds that it took."""
        started = time.monotonic()
        requests = [self.add(prompt, n_tokens) for prompt in prompts]
        results: dict[str, Any] = {}
        while len(results) < len(requests) * self.manager.num_return_sequences:
            result = self.result(1)
            if result and "fatal" in result:
                return result
            if result:
                results[result["id"]] = result
        return {
            "tokens": [results[request]["tokens"] for request in requests],
            "all": {request: result["tokens"] for request, result in results.items()},
            "errors": [result["error"] for result in results.values() if result["error"]],
            "seconds": time.monotonic() - started,
        }

    def stats(self) -> dict[str, int] | None:
        """Of the cache on kvlease."""
        cache = self.manager.kvlease
        return asdict(cache.stats) if cache else None

    def sizes(self) -> dict[str, int]:
        """Tokens of a batch, blocks of the cache, and bytes of the attention masks."""
        cache = self.manager.kvlease
        masks = self.manager.batch_processor.inputs_and_outputs.attention_mask
        return {
            "batch": cache.max_batch_tokens,
            "blocks": cache.num_blocks,
            "masks": sum(mask.nbytes for mask in masks.values()),
        }

    def stop(self) -> None:
        """Ends the engine; what it held is given back."""
        self.manager.stop(block=True, hard_stop=True)

    def failed(self, error: Exception) -> dict[str, str]:
        """The answer to a call that ended with it: what the engine's thread ended with says more
        than that it has ended."""
        fatal = self.manager.background_thread_status.fatal_error
        return {"fatal": str(fatal)} if fatal else {"error": repr(error)}
