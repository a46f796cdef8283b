"""With what vLLM computes: the model that a worker has in memory, its adapters, and their changes.

A worker's Watch knows. It is told of calls into the worker that may change the model, looks at the
model between steps, and compares all of it where it may have changed. The scheduler reads its
State: at once, where both are of one process, else from memory that the worker shares.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from vllm.distributed.parallel_state import get_dp_group, get_pp_group, get_tp_group
from vllm.v1.worker.worker_base import WorkerBase, WorkerWrapperBase

from kvlease._digest import hash_parts
from kvlease._identity import Watched, hash_values
from kvlease.vllm import _doors, identity

_logger = logging.getLogger("kvlease")

_T = TypeVar("_T")

# Adapters that a board has room for; older ones are forgotten, and nothing is found for them.
_MAX_ADAPTERS = 4096
_BOARD_BYTES = 1 << 20
# Not tuned: a board is written in some microseconds.
_MAX_READS = 1000

_DIGEST_BYTES = 32
# Rows of a product, which bound the memory that it takes; not tuned.
_UNIT_VECTORS = 1024

Adapter = tuple[int, bytes]
"""How often the adapter of an id has been another one, and its digest; of several ranks the digests
of each, in their order."""


@dataclass(frozen=True)
class Epoch:
    """What a request's text is computed with."""

    n_changes: int
    adapter: int | None = None
    """Its id."""
    known: Adapter | None = None
    """None: it isn't loaded yet."""

    def loaded(self) -> list[tuple[int, bytes]]:
        """Id and digest of the adapter; none if there is none, or it isn't loaded yet."""
        return [(self.adapter or 0, self.known[1])] if self.known else []


@dataclass(frozen=True)
class State:
    """What an engine computes with."""

    n_changes: int = 0
    is_known: bool = True
    root: bytes | None = None
    """What keys are mixed with; None: the model is the one that the namespace was opened for."""
    adapters: Mapping[int, Adapter] = field(default_factory=dict)

    def begin(self, lora_request: Any) -> Epoch:
        """Of a request that is computed from now on."""
        if lora_request is None:
            return Epoch(self.n_changes)
        number = int(lora_request.lora_int_id)
        # One that is loaded anew with each request is known when it was.
        known = None if lora_request.load_inplace else self.adapters.get(number)
        return Epoch(self.n_changes, number, known)

    def go_on(self, epoch: Epoch) -> Epoch | None:
        """The same epoch, with what is known of it now; None: it is over."""
        if epoch.n_changes != self.n_changes:
            return None
        if epoch.adapter is None:
            return epoch
        now = self.adapters.get(epoch.adapter)
        if epoch.known is None and (now is None or now[0] == 1):
            return replace(epoch, known=now)
        return epoch if now == epoch.known else None

    def can_share(self, epoch: Epoch) -> bool:
        """Whether there are keys for its pages."""
        return self.is_known and (epoch.adapter is None or epoch.known is not None)

    def keys(self, epoch: Epoch, hashes: Iterable[bytes]) -> list[bytes]:
        """Of pages, from vLLM's own, which have nothing of the model, of adapters the names."""
        if self.root is None and epoch.known is None:
            return list(hashes)
        mixed = hash_parts(self.root or b"", epoch.known[1] if epoch.known else b"")
        return [hash_parts(mixed, each) for each in hashes]

    def identity(self, first: bytes) -> bytes | None:
        """Of the model; first: where it is the one that the namespace was opened for. None: it
        isn't known."""
        return (self.root or first) if self.is_known else None

    def has_same(self, other: State) -> bool:
        """Whether what was computed with the other one is this one's as well."""
        return self.n_changes == other.n_changes and all(
            self.adapters.get(number) == adapter for number, adapter in other.adapters.items()
        )


def _gather_in(group: Any, value: Any) -> list[Any]:
    of_all = [None] * group.world_size
    torch.distributed.all_gather_object(of_all, value, group=group.cpu_group)
    return of_all


def gather(value: _T) -> list[_T]:
    """What each rank of this engine calls it with, in their order."""
    of_stages = _gather_in(get_pp_group(), _gather_in(get_tp_group(), value))
    return [each for stage in of_stages for each in stage]


def find_on_stack(kind: type[_T]) -> Any:
    """The nearest object of that kind, or the kind itself, one of whose methods is being called;
    None: there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        owner: Any = frame.f_locals.get("self", frame.f_locals.get("cls"))
        if isinstance(owner, kind) or owner is kind:
            return owner
        frame = frame.f_back  # type: ignore[assignment]
    return None


def on_stack(kind: type[_T]) -> _T:
    """As find_on_stack(), since vLLM gives a connector no other way to it; ValueError: none."""
    found: _T | None = find_on_stack(kind)
    if found is None:
        raise ValueError(
            f"vLLM makes its connector otherwise than was expected: without {kind.__name__}"
        )
    return found


@dataclass(frozen=True)
class Place:
    """Where a rank's State can be read."""

    pid: int
    fd: int
    identity: bytes
    """Of the rank's part of the model."""


# Of this process.
_watches: dict[Place, Watch] = {}


def _model(worker: Any) -> torch.nn.Module:
    """All that computes what is in a rank's blocks: a model, or the list of it and the one that
    proposes tokens for it. ValueError where it can't be read."""
    model: torch.nn.Module = worker.get_model()
    if not identity.has_draft_model(worker.vllm_config):
        return model
    draft = worker.get_draft_model()
    if draft is not None:
        return torch.nn.ModuleList([model, draft])
    if get_pp_group().is_last_rank:
        raise ValueError(
            "the KvleaseConnector doesn't support speculative decoding by "
            f"{worker.vllm_config.speculative_config.method!r}: vLLM doesn't say what its draft "
            "model is"
        )
    return model


def _parts(model: torch.nn.Module) -> tuple[torch.nn.Module, ...]:
    return tuple(model) if isinstance(model, torch.nn.ModuleList) else (model,)


def _convert(worker: Any) -> None:
    """Does on the CPU to the tables of rotary embeddings what vLLM does in its first step. On GPUs
    it has made one, to see how much memory it takes."""
    if worker.device.type != "cpu":
        return
    numbers = torch.empty(0, dtype=worker.model_config.dtype)
    for module in _model(worker).modules():
        if hasattr(module, "_match_cos_sin_cache_dtype"):
            module._match_cos_sin_cache_dtype(numbers)


def _unpack(module: torch.nn.Module) -> torch.Tensor | None:
    """The weight of a linear layer that computes with a copy which vLLM's kernels for CPUs have
    packed: the layer's answers to unit vectors are its numbers. None: it isn't such a layer."""
    linear: Any = getattr(module, "cpu_linear", None)
    if not getattr(linear, "__closure__", None):
        return None
    weight = module.weight
    n = getattr(module, "input_size_per_partition", None) or getattr(module, "input_size", 0)
    n = weight.shape[-1] if weight.numel() else n
    units = (torch.nn.functional.one_hot(u, n) for u in torch.arange(n).split(_UNIT_VECTORS))
    return torch.cat([linear(unit.to(weight.dtype), weight, None) for unit in units])


class Watch:
    """Knows what a rank computes with."""

    def __init__(self, name: str | None) -> None:
        """name: of the weights, that the user has given them. ValueError, of all ranks at once,
        where the model can't be told apart. Made while vLLM's worker initializes its KV cache."""
        worker = self._worker = on_stack(WorkerBase)
        own, why = b"", ""
        ignored = ("load_weights", "cpu_linear")
        try:
            _convert(worker)
            self._watched = Watched(_model(worker), name, ignored=ignored, unpack=_unpack)
            own = self._watched.identity
        except ValueError as error:
            why = str(error)
        said = gather((own, why))
        # Ranks that went on alone would wait for the others for ever.
        if refused := [each for _, each in said if each]:
            raise ValueError(refused[0])
        self.identity = hash_parts(*(each for each, _ in said))
        """Of the model: what all ranks have makes it up, in their order."""
        if get_dp_group().world_size > 1:
            # Engines with experts have parts of them each, and compute the same numbers together.
            self.identity = hash_parts(*_gather_in(get_dp_group(), self.identity))
        pipeline, tensor = get_pp_group(), get_tp_group()
        self.n_ranks = pipeline.world_size * tensor.world_size
        self.rank = pipeline.rank_in_group * tensor.world_size + tensor.rank_in_group
        """Of this worker, of those that compute one model."""
        self._adapters: dict[int, Adapter] = {}
        self._expected: tuple[tuple[int, bytes], ...] = ()
        self._board = _Board()
        self.asleep: set[str] = set()
        """Kinds of memory that the rank doesn't have now: 'weights', 'kv_cache' (sleep mode)."""
        self.is_read_here = False
        """By a scheduler of this process, which looks whenever it matters."""
        self.place = Place(os.getpid(), self._board.fd, own)
        _watches[self.place] = self
        self._tell()
        _doors.guard(on_stack(WorkerWrapperBase), worker, self)
        for part in _parts(self._watched.model):
            _doors.guard_model(part, self)

    def close(self) -> None:
        """Nothing is asked any more, however often vLLM says so."""
        if _watches.pop(self.place, None):
            self._board.close()

    def suspect(self, door: str) -> None:
        """Somebody asks for something that may change the model."""
        if self._watched.current is not None:
            _logger.info("compares the model with what it was: %s was asked for", door)
            self._watched.suspect()
            self._tell()

    def settle(self, has_looked: bool = False) -> None:
        """Compares the model with what it was, where that may differ; between steps. A model that
        sleeps can't be read, and isn't known."""
        if "weights" in self.asleep:
            return
        if not has_looked and self._watched.current is not None and not self._watched.look():
            self.suspect("a change")
        if self._watched.current is None and not self._watched.is_over:
            model = _model(self._worker)
            if _parts(model) != _parts(self._watched.model):
                self._watched.model = model
                for part in _parts(model):
                    _doors.guard_model(part, self)
            self._watched.renew()
            self._tell()

    def fall_asleep(self, tags: Iterable[str]) -> None:
        """Memory of these kinds, 'weights' and 'kv_cache', is about to be given back."""
        self.asleep |= set(tags)

    def awake(self, tags: Iterable[str] | None = None) -> None:
        """The memory is there again; None: all of it."""
        self.asleep -= self.asleep if tags is None else set(tags)
        self.settle()

    def loaded(self, request: Any, adapter: Any) -> None:
        """An adapter was read into memory, and is going to be used. RuntimeError where pages were
        found that another one of the same id has computed."""
        number = int(request.lora_int_id)
        digest = hash_values({k: v for k, v in vars(adapter).items() if k != "id"})
        n_changes, known = self._adapters.pop(number, (0, b""))
        self._adapters[number] = (n_changes + (digest != known), digest)
        while len(self._adapters) > _MAX_ADAPTERS:
            del self._adapters[next(iter(self._adapters))]
        self._tell()
        self._check()

    def begin_step(self, adapters: Iterable[tuple[int, bytes]]) -> None:
        """Looks at the model, unless the scheduler has. Pages of the step's requests were computed
        with these adapters, by their ids and the digests of all ranks. RuntimeError where one isn't
        that adapter, also until the next step."""
        self.settle(has_looked=self.is_read_here)
        self._expected = tuple(adapters)
        self._check()

    def _check(self) -> None:
        own = slice(self.rank * _DIGEST_BYTES, (self.rank + 1) * _DIGEST_BYTES)
        for number, digests in self._expected:
            digest = digests[own]
            if self._adapters.get(number, (0, digest))[1] != digest:
                raise RuntimeError(
                    f"the files of the LoRA adapter with the id {number} have changed while a "
                    "request had found its pages: load a changed adapter with load_inplace, or "
                    "under another id"
                )

    def _tell(self) -> None:
        watched, adapters = self._watched, self._adapters
        is_known = watched.current is not None
        if self.place in _watches:
            self._board.write(State(watched.n_changes, is_known, watched.root(), adapters))


class _Board:
    """A State in memory that others of the user's processes can read. It is written with an odd
    number in front, and has an even one once it is whole."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = os.memfd_create("kvlease-weights", os.MFD_CLOEXEC) if fd is None else fd
        if fd is None:
            os.truncate(self.fd, _BOARD_BYTES)
        self._memory = mmap.mmap(self.fd, _BOARD_BYTES, prot=mmap.PROT_READ | mmap.PROT_WRITE)

    def write(self, state: State) -> None:
        """Nobody else writes."""
        adapters = {k: [n, digest.hex()] for k, (n, digest) in state.adapters.items()}
        root = state.root.hex() if state.root else None
        text = json.dumps([state.n_changes, state.is_known, root, adapters]).encode()
        number = self.number()
        struct.pack_into("<Q", self._memory, 0, number + 1)
        struct.pack_into("<Q", self._memory, 8, len(text))
        self._memory[16 : 16 + len(text)] = text
        struct.pack_into("<Q", self._memory, 0, number + 2)

    def number(self) -> int:
        """Another one with each write."""
        return int(struct.unpack_from("<Q", self._memory, 0)[0])

    def read(self) -> State:
        """Unknown where its writer ended in the middle."""
        for _ in range(_MAX_READS):
            number = self.number()
            n_bytes = min(struct.unpack_from("<Q", self._memory, 8)[0], _BOARD_BYTES)
            text = self._memory[16 : 16 + n_bytes]
            if number % 2 == 0 and number == self.number():
                n_changes, is_known, root, adapters = json.loads(text)
                return State(
                    n_changes,
                    is_known,
                    bytes.fromhex(root) if root else None,
                    {int(k): (n, bytes.fromhex(digest)) for k, (n, digest) in adapters.items()},
                )
        return State(is_known=False)

    def close(self) -> None:
        """The memory goes with the last process that has it."""
        self._memory.close()
        os.close(self.fd)


class Reader:
    """The State of an engine of one rank or more."""

    def __init__(self, places: Iterable[Place]) -> None:
        """ValueError where a rank's can't be read."""
        places = list(places)
        self._local = [_watches[place] for place in places if place in _watches]
        for watch in self._local:
            watch.is_read_here = True
        self._boards = [_open(place) for place in places]
        self._numbers: list[int] = []
        self._state = State()

    def state(self) -> State:
        """As it is now. The same object where nothing has changed."""
        for watch in self._local:
            watch.settle()
        numbers = [board.number() for board in self._boards]
        if numbers != self._numbers:
            self._numbers = numbers
            self._state = _combine([board.read() for board in self._boards])
        return self._state

    def compare(self) -> State:
        """As it is now, also where it was changed in a way that nothing tells: by whoever is in the
        worker's process. Whoever isn't asks the worker, which says so."""
        for watch in self._local:
            watch.suspect("a reset of the prefix cache")
        return self.state()

    def close(self) -> None:
        """Nothing is asked any more."""
        for board in self._boards:
            board.close()


def _open(place: Place) -> _Board:
    try:
        return _Board(os.open(f"/proc/{place.pid}/fd/{place.fd}", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise ValueError(
            f"the scheduler can't ask its worker, process {place.pid}, what model it has: {error}"
        ) from error


def _combine(states: list[State]) -> State:
    """Of all ranks, in their order."""
    if len(states) == 1:
        return states[0]
    roots = [state.root or b"" for state in states]
    common = set.intersection(*(set(state.adapters) for state in states))
    adapters: dict[int, Adapter] = {}
    for number in common:
        of_ranks = [state.adapters[number] for state in states]
        # Each rank finds its own among them: expert-parallel ones load different parts.
        adapters[number] = max(n for n, _ in of_ranks), b"".join(each for _, each in of_ranks)
    return State(
        sum(state.n_changes for state in states),
        all(state.is_known for state in states),
        hash_parts(*roots) if any(roots) else None,
        adapters,
    )
