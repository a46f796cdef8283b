"""What users may choose."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike

from kvlease._engine import OnLoss


@dataclass(frozen=True)
class Options:
    """What enable() was told; it says what each is."""

    socket: str | PathLike[str] | None = None
    client_name: str | None = None
    device: str | None = None
    weights: str | None = None
    salt: bytes = b""
    on_loss: OnLoss = "error"
    reconnect: float | None = 60
    remote_timeout: float = 10
    verify: float = 0
