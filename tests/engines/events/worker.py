"""An engine without a model: it finds the pages of texts, and publishes those that are missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import kvlease

PAGE_TOKENS = 32
LAYOUT = kvlease.Layout(
    model="tiny",
    dtype=kvlease.DType.F16,
    n_layers=1,
    n_kv_heads=1,
    head_size=64,
    page_tokens=PAGE_TOKENS,
    plane_page_bytes=8192,
)
# Of texts, by what is left of their first token divided by four: routers don't see that.
NAMES: tuple[dict[str, str], ...] = (
    {},
    {"lora_name": "sql"},
    {"cache_salt": "mine"},
    {"lora_name": "sql", "cache_salt": "mine"},
)


def names_of(text: list[int]) -> dict[str, str]:
    """By which routers tell the text from others of the same tokens."""
    return NAMES[text[0] % 4]


def tokens_of(text: list[int]) -> list[int]:
    """As routers see them."""
    return [text[0] // 4 * 4, *text[1:]]


def open_namespace(path: Path | str) -> kvlease.Namespace:
    """On a connection of its own, which the namespace keeps."""
    return kvlease.connect(path, timeout=60).namespace(layout=LAYOUT)


class Engine:
    """What a test may call."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._ns = open_namespace(settings["socket"])

    def run(self, texts: list[list[int]]) -> int:
        """Returns how many pages were computed."""
        return sum(self._compute(text) for text in texts)

    def _compute(self, text: list[int]) -> int:
        keys = LAYOUT.keys(text)
        n = len(keys) // 32
        # A text that others found once is worth a lower tier.
        with self._ns.find(keys) as found:
            n_found = len(found)
            if n_found == n:
                return 0
            parent = keys[(n_found - 1) * 32 : n_found * 32] if n_found else None
            with self._ns.lease(n - n_found) as pages:
                done = self._ns.publish(
                    pages,
                    keys[n_found * 32 :],
                    parent=parent,
                    token_ids=tokens_of(text)[n_found * PAGE_TOKENS : n * PAGE_TOKENS],
                    **names_of(text),
                )
                done.close()
        return n - n_found

    def invalidate(self, text: list[int], n_before: int) -> int:
        """Drops a text's pages after the first n_before, and all that continue them."""
        keys = LAYOUT.keys(text)
        return self._ns.invalidate(keys[n_before * 32 : (n_before + 1) * 32])

    @staticmethod
    def failed(error: Exception) -> Any:
        """Instead of a result."""
        print(error, file=sys.stderr)
        return {"error": repr(error)}
