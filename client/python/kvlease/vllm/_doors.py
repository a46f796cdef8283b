"""Ways into a worker of vLLM that may change what it computes with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvlease.vllm.weights import Watch

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
# Kinds of memory that sleep gives back.
_ALL = ("weights", "kv_cache")


def guard(wrapper: Any, worker: Any, watch: Watch) -> None:
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
            # vLLM's sleep mode: discard(tags), wake_up(tags).
            if name == "sleep":
                return _around(found, lambda *_, **__: watch.fall_asleep(_ALL))
            if name == "discard":
                return _around(found, watch.fall_asleep)
            if name == "wake_up":
                return _around(found, after=watch.awake)
            if name in _LAST:
                return _around(found, after=lambda *_, **__: watch.settle())
            return found

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


def guard_model(model: Any, watch: Watch) -> None:
    """Of one whose weights somebody loads who has asked for it before."""
    if hasattr(model, "load_weights"):
        model.load_weights = _around(
            model.load_weights, lambda *_, **__: watch.suspect("load_weights")
        )


def _around(
    call: Callable[..., Any],
    before: Callable[..., Any] = lambda *_, **__: None,
    after: Callable[..., Any] = lambda *_, **__: None,
) -> Callable[..., Any]:
    """Calls before and after with the arguments of the call."""

    def around(*arguments: Any, **keywords: Any) -> Any:
        before(*arguments, **keywords)
        result = call(*arguments, **keywords)
        after(*arguments, **keywords)
        return result

    return around
