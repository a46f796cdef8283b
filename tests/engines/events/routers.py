"""Routers that are told what a host has: Dynamo's indexer, and a model of llm-d's rules."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import zmq
from worker import names_of, tokens_of

PORT = 18090  # of the indexer, in a network namespace of the test's own
LIVE = "tcp://127.0.0.1:15557"
REPLAY = "tcp://127.0.0.1:15558"
LLM_D = "tcp://127.0.0.1:15559"
MODEL = "tiny"
BLOCK = 16
SECONDS = 60

# Tokens that a router finds up to each tier: device, host memory, disk.
Answer = tuple[int, int, int]


class Indexer:
    """`python -m dynamo.indexer`, which knows one instance."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: http.client.HTTPConnection | None = None

    def start(self) -> None:
        """Returns when it follows the events."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dynamo.indexer", "--port", str(PORT)],
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + SECONDS
        instance = {
            "instance_id": 1,
            "endpoint": LIVE,
            "replay_endpoint": REPLAY,
            "model_name": MODEL,
            "block_size": BLOCK,
        }
        while True:
            try:
                self._call("/register", instance)
                return
            except (OSError, http.client.HTTPException):
                assert time.monotonic() < end, "the indexer doesn't answer"
                time.sleep(0.05)

    def _call(self, path: str, body: dict[str, Any]) -> Any:
        if not self._connection:
            self._connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=SECONDS)
        try:
            headers = {"Content-Type": "application/json"}
            self._connection.request("POST", path, json.dumps(body), headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self._connection = None
            raise
        assert answer.status < 300, (path, answer.status, text)
        return json.loads(text or b"null")

    def ask(self, text: list[int]) -> Answer:
        """What it finds of a text."""
        query = {"token_ids": tokens_of(text), "model_name": MODEL, **names_of(text)}
        said = self._call("/query", query)
        found = said["instances"].get("1", {"gpu": 0, "cpu": 0, "disk": 0})
        return found["gpu"], found["cpu"], found["disk"]

    def kill(self) -> None:
        """SIGKILL."""
        if self._process:
            self._process.kill()
            self._process.wait()
        if self._connection:
            self._connection.close()
            self._connection = None


class UnixConnection(http.client.HTTPConnection):
    """HTTP at the path of a Unix socket."""

    def connect(self) -> None:
        """Called by the base class."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self.host)


class Queries:
    """A router without a state, which asks kvlease-events itself."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _ask(self, query: dict[str, Any]) -> Answer:
        connection = UnixConnection(str(self._path))
        try:
            connection.request("POST", "/v1/prefix", json.dumps(query))
            answer = connection.getresponse()
            said = json.loads(answer.read()) if answer.status == 200 else None
        except OSError:
            said = None
        finally:
            connection.close()
        if not said:
            return -1, -1, -1
        tiers = said["tiers"]
        assert said["tokens"] == tiers["disk"] == said["blocks"] * BLOCK
        return tiers["gpu"], tiers["cpu"], tiers["disk"]

    def ask(self, text: list[int]) -> Answer:
        """What is cached of a text; -1: not known."""
        return self._ask({**names_of(text), "token_ids": tokens_of(text)})

    def ask_keys(self, keys: bytes) -> Answer:
        """The same, of pages."""
        return self._ask({"keys": [keys[i : i + 32].hex() for i in range(0, len(keys), 32)]})


def chain(before: bytes, tokens: list[int], extra_keys: list[str] | None) -> bytes:
    """A router's own name of a block."""
    return hashlib.sha256(before + repr((tokens, extra_keys)).encode()).digest()


class LlmD:
    """llm-d-router's rules for one subscription without a replay port: topic kv@POD@MODEL, any
    sequence number, an event with an unknown parent dropped, tiers by lower-case names."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self._lock = threading.Lock()
        self._names: dict[int, bytes] = {}
        self._tiers: dict[bytes, set[str]] = {}
        self._is_over = False
        self.payloads: list[bytes] = []
        self.topics: set[str] = set()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def close(self) -> None:
        """Ends it."""
        self._is_over = True
        self._thread.join()
        self._context.term()

    def forget(self) -> None:
        """As one that was started anew: subscribes again."""
        self.close()
        payloads = self.payloads
        self.__init__()  # type: ignore[misc]
        self.payloads = payloads

    def _follow(self) -> None:
        with self._context.socket(zmq.SUB) as sub:
            sub.setsockopt(zmq.SUBSCRIBE, b"kv@")
            sub.setsockopt(zmq.RECONNECT_IVL_MAX, 100)
            sub.connect(LLM_D)
            while not self._is_over:
                if sub.poll(50):
                    topic, _, payload = sub.recv_multipart()
                    self.topics.add(topic.decode())
                    self.payloads.append(payload)
                    with self._lock:
                        self._take(payload)

    def _take(self, payload: bytes) -> None:
        for event in msgspec.msgpack.decode(payload)[1]:
            if event["type"] == "AllBlocksCleared":
                self._names.clear()
                self._tiers.clear()
            elif event["type"] == "BlockStored":
                self._store(event)
            else:
                tier = event["medium"].lower()
                for block in event["block_hashes"]:
                    with contextlib.suppress(KeyError):
                        self._tiers[self._names[block]].discard(tier)

    def _store(self, event: dict[str, Any]) -> None:
        name = b""
        if event["parent_block_hash"]:
            if event["parent_block_hash"] not in self._names:
                return
            name = self._names[event["parent_block_hash"]]
        for i, block in enumerate(event["block_hashes"]):
            extra_keys = (event.get("extra_keys") or {i: None})[i]
            name = chain(name, event["token_ids"][i * BLOCK : (i + 1) * BLOCK], extra_keys)
            self._names[block] = name
            self._tiers.setdefault(name, set()).add(event["medium"].lower())

    def ask(self, text: list[int]) -> Answer:
        """The blocks found, as a text's beginning in tiers up to each."""
        found = [0, 0, 0]
        names, tokens = names_of(text), tokens_of(text)
        lora = [names["lora_name"]] if "lora_name" in names else []
        salt = [names["cache_salt"]] if "cache_salt" in names else []
        with self._lock:
            for last in range(3):
                allowed = (
                    {"gpu", "cpu", "storage"} if last == 2 else {"gpu", "cpu"} if last else {"gpu"}
                )
                name = b""
                for at in range(0, len(text) - BLOCK + 1, BLOCK):
                    extra_keys = lora + (salt if at == 0 else [])
                    name = chain(name, tokens[at : at + BLOCK], extra_keys or None)
                    if not self._tiers.get(name, set()) & allowed:
                        break
                    found[last] += BLOCK
        return found[0], found[1], found[2]
