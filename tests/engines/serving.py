"""`vllm serve` on the CPU, with a small model of random weights, `lmcache server`, and who asks
them: for the tests and for packaging/demo.sh."""

from __future__ import annotations

import contextlib
import gc
import http.client
import importlib.util
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import SECONDS, forks

HERE = Path(__file__).resolve().parent
ROUTER = HERE.parents[1] / "client/python/examples/router.py"
PAGE = 32


def _find_kernels() -> list[str]:
    """Folders of the tests' own kernels: none where vLLM is built for the CPU, and has some."""
    vllm = importlib.util.find_spec("vllm")
    built = vllm and vllm.origin and (Path(vllm.origin).parent / "_C.abi3.so").exists()
    return [] if built else [str(HERE / "vllm/ops")]


KERNELS = _find_kernels()

ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "PYTHONPATH": ":".join([os.environ.get("PYTHONPATH", ""), *KERNELS]),
    # One process an engine, and one more where it is served, which starts in half the time.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    # Otherwise each rank wants a memory node of its own, and a thread for each processor.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
"""What vLLM needs to run on the CPU with the kernels of vllm/ops."""

OPTIONS = (
    *("--skip-tokenizer-init", "--enforce-eager", "--enable-prompt-tokens-details"),
    *("--dtype", "float32", "--compilation-config", '{"custom_ops": ["none"]}'),
    *("--block-size", str(PAGE), "--kv-cache-memory-bytes", str(64 << 20)),
    *("--max-num-seqs", "8", "--distributed-executor-backend", "uni"),
)


def to_connector(connector: str, **extra: Any) -> dict[str, Any]:
    """vLLM's kv_transfer_config of a connector, with its kv_connector_extra_config."""
    return {"kv_connector": connector, "kv_role": "kv_both", "kv_connector_extra_config": extra}


def transfer(connector: str, **extra: Any) -> tuple[str, str]:
    """Options of vLLM that make it use a connector."""
    return "--kv-transfer-config", json.dumps(to_connector(connector, **extra))


def kvlease(socket: Path | str) -> tuple[str, str]:
    """... that of kvlease."""
    return transfer("KvleaseConnector", socket=str(socket))


def lmcache(port: int) -> dict[str, Any]:
    """kv_connector_extra_config of LMCacheMPConnector, for an LMCache server."""
    return {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": port}


@dataclass
class Answer:
    """Of a request, as it came in."""

    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """time.monotonic() of each token."""
    n_prompt: int = 0
    """Tokens of the prompt, as the server that ended it counts them: it may have gone on where
    another one was killed."""
    n_found: int = 0
    """Of these, those that it didn't compute."""


def find_port() -> int:
    """One of this machine that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def preload() -> None:
    """Has engines forked from a process that has imported vLLM, and this process use the same."""
    os.environ.update(ENVIRONMENT)
    sys.path.extend(KERNELS)
    forks.set_forkserver_preload(
        [
            "kvlease.vllm.copies",
            "kvlease.vllm.in_place",
            "vllm.entrypoints.cli.benchmark.main",
            "vllm.entrypoints.cli.serve",
            "vllm.entrypoints.llm",
            "vllm.lora.resolver",
            "vllm.model_executor.models.deepseek_v2",
            "vllm.model_executor.models.llama",
            "vllm.v1.worker.cpu_worker",
        ]
    )


def fork_parts() -> None:
    """Has vLLM fork this engine's own processes, as on GPUs: on the CPU each imports all of vLLM
    again, which takes longer than most of the tests. So does the one that looks at a model's class
    in an environment without vLLM's own cache."""
    from vllm import ModelRegistry  # noqa: PLC0415
    from vllm.model_executor.models.deepseek_v2 import DeepseekV3ForCausalLM  # noqa: PLC0415
    from vllm.model_executor.models.llama import LlamaForCausalLM  # noqa: PLC0415
    from vllm.utils import system_utils  # noqa: PLC0415

    for model in (DeepseekV3ForCausalLM, LlamaForCausalLM):
        ModelRegistry.register_model(model.__name__, model)
    system_utils._maybe_force_spawn = lambda: os.environ.update(VLLM_WORKER_MULTIPROC_METHOD="fork")


def _run(log: Path, environment: dict[str, str], module: str, *arguments: str) -> None:
    """`python -m`, in a process that was forked with all that the module imports."""
    os.setsid()
    gc.freeze()
    with log.open("ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.environ.update(environment)
    fork_parts()
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


class Forked:
    """A process of _run(), as subprocess.Popen has one."""

    def __init__(self, log: Path, *command: str) -> None:
        self._process = forks.Process(target=_run, args=(log, os.environ | ENVIRONMENT, *command))
        self._process.start()
        self.pid = self._process.pid
        self.terminate = self._process.terminate

    def poll(self) -> int | None:
        """Its exit status."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """... once it has ended."""
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("a forked server", timeout or 0)
        return status


class Server:
    """A program that serves HTTP on a port of its own, in a process group of its own."""

    def __init__(self, log: Path, *command: str, is_forked: bool = False) -> None:
        """command has {port} where the port is to be. is_forked: it begins with "-m", and what it
        imports is there already."""
        self.port = find_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        self._is_forked = is_forked
        self._command = [word.replace("{port}", str(self.port)) for word in command]
        self.start()

    def start(self) -> None:
        """Starts it, again where it has ended."""
        if self._is_forked:
            self.process: Forked | subprocess.Popen[bytes] = Forked(self._log, *self._command[1:])
            return
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, *self._command],
                env=os.environ | ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Until it answers; RuntimeError with the end of its log where it ends or doesn't."""
        end = time.monotonic() + SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            try:
                urllib.request.urlopen(f"{self.url}/health").close()
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.1)
        log = self._log.read_text(errors="replace").splitlines()[-20:]
        raise RuntimeError(
            "\n".join([f"the server doesn't serve, exit {self.process.poll()}", *log])
        )

    def ask(
        self,
        prompt: list[int],
        n_tokens: int,
        when: tuple[int, Callable[[], None]] | None = None,
        dp_rank: int | None = None,
        **options: Any,
    ) -> Answer:
        """The greedy answer to a prompt. when: after so many tokens, what is called once. dp_rank:
        which of the server's engines computes it."""
        headers = {"Content-Type": "application/json"}
        if dp_rank is not None:
            headers["X-data-parallel-rank"] = str(dp_rank)
        body = {
            "prompt": prompt,
            "max_tokens": n_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        with contextlib.closing(connection):
            connection.request(
                "POST",
                "/v1/completions",
                json.dumps(body | options),
                headers,
            )
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise RuntimeError(f"{response.status}: {response.read().decode()}")
            answer = Answer()
            for line in response:
                if line.startswith(b"data: {"):
                    self._take(answer, json.loads(line[6:]))
                    if when and len(answer.tokens) >= when[0]:
                        when[1]()
                        when = None
        return answer

    def complete(self, **body: Any) -> str:
        """The text of the greedy answer; body: of the request."""
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            json.dumps(body | {"temperature": 0}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as response:
            return str(json.load(response)["choices"][0]["text"])

    @staticmethod
    def _take(answer: Answer, part: dict[str, Any]) -> None:
        if "error" in part:
            raise RuntimeError(part["error"])
        for choice in part["choices"]:
            answer.tokens += choice["token_ids"]
            answer.times += [time.monotonic()] * len(choice["token_ids"])
        if usage := part.get("usage"):
            answer.n_prompt = usage["prompt_tokens"]
            answer.n_found = usage["prompt_tokens_details"]["cached_tokens"]

    def kill(self) -> None:
        """SIGKILL of all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Ends it as its operator does, and what is left of it."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(SECONDS)
        self.kill()


def serve(log: Path, model: str, *options: str, is_forked: bool = False) -> Server:
    """Starts `vllm serve`; wait() waits until it has."""
    program = ("-m", "vllm.entrypoints.cli.main", "serve", model)
    place = ("--host", "127.0.0.1", "--port", "{port}", "--served-model-name", "tiny")
    return Server(log, *program, *place, *OPTIONS, *options, is_forked=is_forked)


def serve_lmcache(log: Path, port: int, *options: str) -> Server:
    """Starts `lmcache server`, with a port for engines; wait() waits until it serves. It has no
    metrics, which would listen on all addresses."""
    program = ("-c", "from lmcache.cli.main import main; main()", "server")
    place = ("--host", "127.0.0.1", "--port", str(port), "--http-port", "{port}")
    rest = ("--disable-metrics", "--supported-transfer-mode", "engine_driven")
    return Server(log, *program, *options, *place, *rest)


def route(log: Path, prefill: Server, decode: Server) -> Server:
    """Starts the router of client/python/examples."""
    return Server(log, str(ROUTER), "127.0.0.1:{port}", prefill.url, decode.url)
