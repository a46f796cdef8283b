"""Ways into a worker of vLLM that may change what it computes with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

# What vLLM asks its workers for, with each step or around the start, and which changes no weights.
# Whatever else is asked for may be code of the user's.
_HARMLESS = frozenset(
    {
        "_apply_mm_cache",
        "_worker_extension_cls",
        "add_lora",
        "check_health",
        "compile_or_warm_up_model",
        "compute_weight_checksums",
        "determine_available_memory",
        "device",
        "execute_dummy_batch",
        "execute_model",
        "get_cache_block_size_bytes",
        "get_encoder_timing_stats",
        "get_kv_cache_spec",
        "get_kv_connector_handshake_metadata",
        "get_model_inspection",
        "get_supported_kv_cache_layouts",
        "get_supported_tasks",
        "global_rank",
        "init_device",
        "initialize_from_config",
        "list_loras",
        "mm_receiver_cache",
        "pin_lora",
        "profile",
        "rank",
        "release_late_interaction_query_cache",
        "remove_lora",
        "reset_encoder_cache",
        "reset_mm_cache",
        "rpc_rank",
        "sample_tokens",
        "set_kv_cache_layout",
        "shutdown",
        "synchronize_device",
        "take_draft_token_ids",
        "update_max_model_len",
        "vllm_config",
    }
)
# What vLLM's own code takes from the wrapper.
_OF_VLLM = frozenset({"model_runner", "worker"})
# What ends a change: what there is then is looked at at once.
_LAST = frozenset({"finish_weight_update", "reload_weights"})


class _Watch(Protocol):
    def suspect(self, door: str) -> None:
        """Somebody asks for something that may change the model."""

    def settle(self) -> None:
        """Compares it."""

    def fall_asleep(self, tags: Iterable[str]) -> None:
        """Memory of these kinds, 'weights' and 'kv_cache', is about to be given back."""

    def awake(self, tags: Iterable[str] | None) -> None:
        """It is there again; None: all of it."""

    def loaded(self, request: Any, adapter: Any) -> None:
        """An adapter."""


def guard(wrapper: Any, worker: Any, watch: _Watch) -> None:
    """Tells watch whatever is asked of a worker through vLLM's wrapper, and which adapters are
    loaded."""
    kind = type(wrapper)

    class Guarded(kind):  # type: ignore[misc, valid-type]
        """Through which vLLM calls the worker, and whoever uses collective_rpc()."""

        def __getattribute__(self, name: str) -> Any:
            if name not in _HARMLESS and not name.startswith("__"):
                caller = sys._getframe(1).f_globals.get("__name__", "")
                if name not in _OF_VLLM or not caller.startswith("vllm."):
                    watch.suspect(name)
            return super().__getattribute__(name)

        def __getattr__(self, name: str) -> Any:
            found = super().__getattr__(name)
            if name in _SLEEPING:
                return _SLEEPING[name](found, watch)
            return _then(found, watch.settle) if name in _LAST else found

    Guarded.__name__, Guarded.__qualname__ = kind.__name__, kind.__qualname__
    wrapper.__class__ = Guarded
    adapters = getattr(worker.model_runner, "lora_manager", None)
    if adapters is not None:
        read = adapters._load_adapter

        def load_adapter(request: Any) -> Any:
            adapter = read(request)
            watch.loaded(request, adapter)
            return adapter

        adapters._load_adapter = load_adapter


def guard_model(model: Any, watch: _Watch) -> None:
    """Of one whose weights somebody loads who has asked for it before."""
    if hasattr(model, "load_weights"):
        load = model.load_weights

        def load_weights(*arguments: Any, **keywords: Any) -> Any:
            watch.suspect("load_weights")
            return load(*arguments, **keywords)

        model.load_weights = load_weights


def _sleep(call: Callable[..., Any], watch: _Watch) -> Callable[..., Any]:
    def sleep(*arguments: Any, **keywords: Any) -> Any:
        watch.fall_asleep(("weights", "kv_cache"))
        return call(*arguments, **keywords)

    return sleep


def _discard(call: Callable[..., Any], watch: _Watch) -> Callable[..., Any]:
    def discard(tags: Any) -> Any:
        watch.fall_asleep(tags)
        return call(tags)

    return discard


def _wake_up(call: Callable[..., Any], watch: _Watch) -> Callable[..., Any]:
    def wake_up(tags: Any = None) -> Any:
        result = call(tags)
        watch.awake(tags)
        watch.settle()
        return result

    return wake_up


# vLLM's sleep mode.
_SLEEPING = {"discard": _discard, "sleep": _sleep, "wake_up": _wake_up}


def _then(call: Callable[..., Any], after: Callable[[], None]) -> Callable[..., Any]:
    def both(*arguments: Any, **keywords: Any) -> Any:
        result = call(*arguments, **keywords)
        after()
        return result

    return both
