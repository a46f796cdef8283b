"""vLLM with a small model of random weights, as support.Engine runs it."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import serving
import torch
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest


class Engine:
    """What a test may call."""

    def __init__(self, settings: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        if not settings.get("spawns"):
            serving.fork_parts()
        self.do(settings.get("before", ""))
        transfer = None
        if "kvlease" in settings:
            transfer = {
                "kv_connector": "KvleaseConnector",
                "kv_role": settings.get("role", "kv_both"),
                "kv_connector_extra_config": settings["kvlease"],
            }
        if "connectors" in settings:
            connectors = [transfer if each is None else each for each in settings["connectors"]]
            transfer = {
                "kv_connector": "MultiConnector",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {"connectors": connectors},
            }
        options = {
            "skip_tokenizer_init": True,
            "dtype": "float32",
            "enforce_eager": True,
            "max_model_len": 2048,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 256,
            "block_size": 32,
            "kv_cache_memory_bytes": 64 << 20,
            "distributed_executor_backend": "uni",
            "disable_log_stats": True,
            "compilation_config": {"custom_ops": ["none"]},
        }
        llm = LLM(settings["model"], kv_transfer_config=transfer, **options | settings["vllm"])
        self.llm, self.engine = llm, llm.llm_engine
        self.n_added = 0
        self.is_one_process = hasattr(llm.llm_engine.engine_core, "engine_core")

    def add(self, prompt: list[int], n_tokens: int, **options: Any) -> str:
        """Begins a request; its id."""
        self.n_added += 1
        request = str(self.n_added)
        text: dict[str, Any] = {"prompt_token_ids": prompt}
        if "cache_salt" in options:
            text["cache_salt"] = options.pop("cache_salt")
        adapter = options.pop("adapter", None)
        parameters = SamplingParams(
            **{"max_tokens": n_tokens, "temperature": 0, "ignore_eos": True} | options,
            detokenize=False,
        )
        self.engine.add_request(
            request, text, parameters, lora_request=LoRARequest(*adapter) if adapter else None
        )
        return request

    def do(self, program: str, **names: Any) -> None:
        """Runs statements, which have `self`."""
        exec(program, {"self": self, "torch": torch, **names})

    def change(self, program: str, **names: Any) -> None:
        """Runs statements that change the model; then vLLM's own cache is reset."""
        self.do(program, **names)
        assert self.llm.reset_prefix_cache()

    def abort(self, request: str) -> None:
        """Ends it early."""
        self.engine.abort_request([request])

    def results(self) -> list[dict[str, Any]]:
        """Steps, and the requests that are over with it."""
        return [
            {
                "id": output.request_id,
                "tokens": [list(each.token_ids) for each in output.outputs],
                "reason": output.outputs[0].finish_reason,
                "found": output.num_cached_tokens,
                "transfer": output.kv_transfer_params,
                "logprobs": output.outputs[0].cumulative_logprob,
            }
            for output in self.engine.step()
            if output.finished
        ]

    def steps(self, n: int) -> list[dict[str, Any]]:
        """As results(), of so many."""
        return [result for _ in range(n) for result in self.results()]

    def run(
        self, prompts: list[list[int]], n_tokens: int, options: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """All of them at once, with the seconds that it took."""
        started = time.monotonic()
        requests = [self.add(prompt, n_tokens, **options or {}) for prompt in prompts]
        done: dict[str, dict[str, Any]] = {}
        while self.engine.has_unfinished_requests():
            done.update({result["id"]: result for result in self.results()})
        if self.is_one_process:
            self.steps(2)  # in which the last pages are compared: a server's loop goes on by itself
        return {
            "tokens": [done[request]["tokens"] for request in requests],
            "found": [done[request]["found"] for request in requests],
            "logprobs": [done[request]["logprobs"] for request in requests],
            "transfers": [done[request]["transfer"] for request in requests],
            "seconds": time.monotonic() - started,
        }

    def embed(self, prompts: list[list[int]]) -> dict[str, Any]:
        """Vectors of texts, and the tokens that were found."""
        outputs = self.llm.embed([{"prompt_token_ids": each} for each in prompts], use_tqdm=False)
        return {
            "vectors": [output.outputs.embedding for output in outputs],
            "found": [output.num_cached_tokens for output in outputs],
        }

    def timed_step(self) -> list[float]:
        """A step: requests that have a new token, seconds, and those that the process computed."""
        begin, begin_computed = time.perf_counter(), time.process_time()
        outputs = self.engine.step()
        end_computed, end = time.process_time(), time.perf_counter()
        return [len(outputs), end - begin, end_computed - begin_computed]

    def timed_first_token(self, prompt: list[int]) -> list[float]:
        """Of one request: tokens that were found, seconds, and those that the process computed."""
        begin, begin_computed = time.perf_counter(), time.process_time()
        self.add(prompt, 1)
        while not (done := self.results()):
            pass
        end_computed, end = time.process_time(), time.perf_counter()
        return [done[0]["found"], end - begin, end_computed - begin_computed]

    def stats(self) -> dict[str, int]:
        """Of the pool on kvlease, where the engine is one process."""
        scheduler = self.engine.engine_core.engine_core.scheduler
        return asdict(scheduler.kv_cache_manager.block_pool.stats)

    def metric(self, name: str) -> int:
        """A counter of vLLM's, where the engine has disable_log_stats False."""
        return sum(each.value for each in self.llm.get_metrics() if each.name == f"vllm:{name}")

    def reset(self, reset_connector: bool = False) -> bool:
        """Drops what is cached."""
        return bool(self.llm.reset_prefix_cache(reset_connector=reset_connector))

    def preempt(self) -> None:
        """All that run begin anew."""
        self.llm.reset_prefix_cache(reset_running_requests=True)

    def stop(self) -> None:
        """Ends the engine; what it held is given back."""
        self.engine.engine_core.shutdown()

    def failed(self, error: Exception) -> dict[str, str]:
        """The answer to a call that ended with it."""
        return {"error": repr(error)}
