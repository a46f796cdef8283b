"""Puts the cache on pages where continuous batching makes its own."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import types
from collections.abc import Iterator
from os import PathLike
from typing import Any

import transformers
from transformers.generation.continuous_batching import continuous_api as engine

from kvlease._engine import OnLoss, check_settings
from kvlease._verify import check_share
from kvlease.transformers.cache import Cache
from kvlease.transformers.options import Options
from kvlease.transformers.patience import Patience

OLDEST = (5, 20)
"""The oldest release of transformers whose engine has the parts this module takes the place of."""


def enable(
    model: Any,
    *,
    socket: str | PathLike[str] | None = None,
    client_name: str | None = None,
    device: str | None = None,
    weights: str | None = None,
    salt: bytes = b"",
    on_loss: OnLoss = "error",
    reconnect: float | None = 60,
    remote_timeout: float = 10,
    verify: float = 0,
) -> None:
    """Lets continuous batching of a model compute on pages of kvlease.

    model: what init_continuous_batching() is called on, by generate_batch() or by the user; or a
    class of models (transformers.PreTrainedModel: all of them). Nothing happens before the engine
    makes its cache. That refuses with ValueError what can't be shared: attention that isn't full,
    tensor parallelism, asynchronous batching, an offload to the CPU, adapters that aren't merged.

    socket: of kvleased, as of kvlease.connect(). client_name: what kvleasectl shows. device: the
    UUID of a GPU or 'host'; None: the daemon's default, or, where the model is on the CPU, 'host'.
    weights: names the weights, which the user vouches for; None: all their bytes are read, at the
    start, where a session of a persistent manager begins, and where a pause ends. salt: keeps equal
    prompts of others apart. on_loss: what happens once kvleased is gone and doesn't come back
    within `reconnect` seconds (None: for ever): 'error': all requests fail; 'continue': those go on
    that need no page more than the engine has. remote_timeout: seconds that a request waits at most
    for pages that kvleased loads from other hosts; 0: it isn't asked for them. verify: of so many
    prompts that are found, 0 to 1, the pages are computed all the same, and compared with those
    that were found; where they differ the engine finds and publishes nothing any more.

    num_blocks of the ContinuousBatchingConfig is how many pages the engine holds at most; page_size
    is their size in tokens.
    """
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    if version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ValueError(
            f"transformers {transformers.__version__} is too old for kvlease: {oldest} is needed"
        )
    check_settings(on_loss, remote_timeout)
    check_share(verify)
    options = Options(
        socket, client_name, device, weights, salt, on_loss, reconnect, remote_timeout, verify
    )
    manager = type("KvleaseManager", (Manager,), {"options": options})
    function = _with_globals(
        engine.ContinuousMixin.init_continuous_batching, ContinuousBatchingManager=manager
    )
    method = function if inspect.isclass(model) else types.MethodType(function, model)
    model.init_continuous_batching = method


def disable(model: Any) -> None:
    """Undoes enable(), of the same object; engines that run go on as they are."""
    if "init_continuous_batching" in vars(model):
        del model.init_continuous_batching


def _with_globals(function: Any, **replaced: Any) -> types.FunctionType:
    """A function of the engine as it is, but for classes it makes: ours instead of its own."""
    inner = inspect.unwrap(function)
    twin = types.FunctionType(
        inner.__code__, {**inner.__globals__, **replaced}, inner.__name__, inner.__defaults__
    )
    twin.__kwdefaults__ = inner.__kwdefaults__
    return twin


class Manager(engine.ContinuousBatchingManager):
    """The engine's manager, whose cache is on pages of kvlease."""

    options = Options()

    def __init__(
        self,
        model: Any,
        generation_config: Any,
        continuous_batching_config: Any,
        *arguments: Any,
        **keywords: Any,
    ) -> None:
        # Left open, the engine takes what this can't, on a GPU with flash attention.
        if continuous_batching_config.use_async_batching is None:
            continuous_batching_config = copy.copy(continuous_batching_config)
            continuous_batching_config.use_async_batching = False
        super().__init__(
            model, generation_config, continuous_batching_config, *arguments, **keywords
        )

    @property
    def kvlease(self) -> Cache | None:
        """The cache, with .stats; None before the first start and after the end."""
        processor = getattr(self, "batch_processor", None)
        return processor.cache if processor is not None else None

    def _create_batch_processor(self) -> Any:
        function = _with_globals(
            engine.ContinuousBatchingManager._create_batch_processor,
            PagedAttentionCache=functools.partial(Cache, self.options, self.model),
        )
        cache = self.kvlease
        processor = function(self)
        # The model may have changed since a session ended; warmup() changes nothing.
        if cache is processor.cache and (cache.has_begun or not cache.watched.look()):
            cache.renew()
        processor.cache.has_begun = self.is_running()
        if not isinstance(processor.scheduler.schedule_batch, Patience):
            processor.scheduler.schedule_batch = Patience(
                processor.scheduler,
                processor._handle_request_error,
            )
        return processor

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """As the engine's, of releases that have it: whoever pauses it may change the model."""
        with super().pause():
            try:
                yield
            finally:
                if self.kvlease is not None:
                    self.kvlease.renew()

    def stop(self, *arguments: Any, **keywords: Any) -> None:
        """As the engine's; what isn't kept for a next session is given back."""
        cache = self.kvlease
        super().stop(*arguments, **keywords)
        if cache is not None and self.kvlease is None and not self.is_running():
            cache.close()

    def destroy(self) -> None:
        """As the engine's; all is given back."""
        cache = self.kvlease
        super().destroy()
        if cache is not None and not self.is_running():
            self.batch_processor = None
            cache.close()
