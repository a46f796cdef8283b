"""Continuous batching of transformers on pages of kvlease.

    kvlease.transformers.enable(model)
    model.generate_batch(...)

The blocks of the engine's KV cache become pages of kvlease, without a copy and without a patch of
transformers: a block's id is a page's number. What one process has computed, every other one of the
tenant finds that runs the same weights in the same way (docs/integrate/transformers.md has the
conditions and refusals).

    python -m kvlease.transformers serve MODEL --continuous-batching

is `transformers serve` with all its arguments, on pages of kvlease (--help has those of kvlease).

An engine has one connection and one namespace. Its generation thread makes all calls; a thread of
its own keeps the connection going while the engine has nothing to do.
"""

from kvlease._engine import Stats
from kvlease.transformers.engine import OLDEST, Manager, disable, enable
from kvlease.transformers.options import Options

__all__ = ["OLDEST", "Manager", "Options", "Stats", "disable", "enable"]
