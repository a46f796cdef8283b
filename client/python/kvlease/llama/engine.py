"""llama_cpp.Llama on pages of kvlease."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import llama_cpp
from llama_cpp import llama_cpp as library

from kvlease import _kvlease
from kvlease._engine import Stats
from kvlease.llama.store import SCRATCH, Options, Store

_logger = logging.getLogger("kvlease")
_making = threading.Lock()
# Names of weights by their files, which a process may open many times over.
_names: dict[tuple[Any, ...], str] = {}


class Llama(llama_cpp.Llama):
    """llama_cpp.Llama that loads prompts from pages, and saves prompts that it computes.

    All arguments are those of llama_cpp.Llama, and `kvlease`, an Options. ValueError where the
    model or the arguments can't be saved: the sentence says why.
    """

    kvlease_options: ClassVar[Options] = Options()
    """Those of objects that are made without the argument `kvlease`."""
    n_tokens: int
    _store: Store | None = None

    def __init__(
        self, model_path: str, *arguments: Any, kvlease: Options | None = None, **keywords: Any
    ) -> None:
        options = kvlease or self.kvlease_options
        _refuse(keywords)
        with _second_sequence():
            super().__init__(model_path, *arguments, **keywords)
        if self.context_params.n_seq_max <= SCRATCH:
            raise ValueError("kvlease can't give the context a second sequence")
        name = Path(model_path).name
        files = [*_splits(model_path), *filter(None, [self.lora_path])]
        self._store = Store(
            options,
            context=self._ctx.ctx,
            library=library._lib._name,
            name=name[:64],
            weights=options.weights or _name_weights(files),
            swa_full=bool(self.context_params.swa_full),
        )

    @property
    def kvlease_stats(self) -> Stats:
        """What it found and computed so far."""
        return self._store.stats if self._store else Stats()

    def eval(self, tokens: Sequence[int]) -> None:
        """Computes the tokens that can't be loaded."""
        store = self._store
        had, end = self.n_tokens, self.n_tokens + len(tokens)
        # No page has the token that was just chosen.
        if store is None or len(tokens) == 0 or (len(tokens) == 1 and end % store.chunk):
            super().eval(tokens)
            return
        text = array("i", self.input_ids[:had].tolist())
        text.extend(map(int, tokens))
        if len(tokens) > 1:
            # The last token is computed in any case: its logits are wanted.
            self._set_tokens(text, store.load(text[: end - 1], had))
        had = self.n_tokens
        chunk_end = end // store.chunk * store.chunk
        if store.has_state and had < chunk_end < end:
            # A state is saved where it is.
            super().eval(text[had:chunk_end])
            store.save(text[:chunk_end])
            super().eval(text[chunk_end:])
            return
        super().eval(text[had:])
        if chunk_end > had:
            store.save(text[:chunk_end])

    def _set_tokens(self, text: array[int], n: int) -> None:
        """The context has the first n tokens of the text."""
        if n != self.n_tokens:
            self.input_ids[:n] = text[:n]
            self.n_tokens = n

    def close(self) -> None:
        """Ends the connection, and frees the model."""
        store, self._store = self._store, None
        if store is not None:
            store.close()
        # Not where the arguments were refused: then there is nothing.
        if "_stack" in vars(self):
            super().close()


class ServedLlama(Llama):
    """A model of llama_cpp.server, which asks for the logits of all tokens unless it is told not
    to."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords | {"logits_all": False})


def _refuse(keywords: dict[str, Any]) -> None:
    """ValueError where not all that an engine computes is in tokens, or all of it is wanted."""
    for name, why in (
        ("logits_all", "logits of tokens that are loaded aren't computed"),
        ("embedding", "embeddings of tokens that are loaded aren't computed"),
        ("chat_handler", "pictures are no tokens"),
    ):
        if keywords.get(name):
            raise ValueError(f"kvlease can't be used with {name}: {why}")


@contextmanager
def _second_sequence() -> Iterator[None]:
    """Contexts that are made meanwhile have the sequence SCRATCH, in the same cells."""
    with _making:
        default = library.llama_context_default_params

        def with_scratch() -> Any:
            params = default()
            params.n_seq_max, params.kv_unified = SCRATCH + 1, True
            return params

        library.llama_context_default_params = with_scratch
        try:
            yield
        finally:
            library.llama_context_default_params = default


def _splits(path: str) -> list[str]:
    """All files of a model of which the first one was named."""
    found = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", path)
    if not found:
        return [path]
    n = int(found[2])
    return [f"{found[1]}-{i:05}-of-{n:05}.gguf" for i in range(1, n + 1)]


def _name_weights(files: list[str]) -> str:
    """A name for the bytes of the files."""
    stats = [Path(file).stat() for file in files]
    key = tuple((each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns) for each in stats)
    if key not in _names:
        began = time.monotonic()
        hashes = [_kvlease.llama_hash(file) for file in files]
        _names[key] = hashlib.sha256(" ".join(hashes).encode()).hexdigest()
        n_bytes = sum(each.st_size for each in stats)
        _logger.info("read %d MB of weights in %.1f s", n_bytes / 1e6, time.monotonic() - began)
    return _names[key]
