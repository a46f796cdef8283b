"""Options of the adapter."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True)
class Options:
    """The adapter_params of LMCache's server; its engine has them in extra_config."""

    socket: str | None = None
    """Socket of the tenant, at most 107 bytes; None: $KVLEASE_SOCKET, else /run/kvlease/sock."""
    client_name: str = "lmcache"
    """Name that kvleasectl shows, at most 64 bytes."""
    device: str | None = None
    """Name of a device of kvleased, or "host"; None: the default device."""
    version: str = ""
    """Version of the weights, at most 128 bytes: objects of another version aren't found. LMCache's
    keys have the model's name alone."""
    page_bytes: int = 278528
    """Bytes of a page, a multiple of 64 from 4096 to 1 GiB. Servers that share have the same.
    The default, 272 KiB, has room for objects of n * 256 KiB and a trailer in n pages, n <= 15."""
    pin_seconds: float = 30.0
    """How long an object that was found is kept from eviction, 0 to 600, until it is loaded."""
    timeout: float = 2.0
    """Seconds that a call may wait for kvleased, 0.001 to 600. After a longer wait kvleased isn't
    asked for 5 s."""

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Makes options. TypeError, ValueError: the sentence names the parameter, its limit and the
        remedy."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise TypeError(f"there is no parameter {name}: choose of {', '.join(known)}")
        options = cls(**given)
        options._check()
        return options

    def _check(self) -> None:
        for name, low, high in (
            ("page_bytes", 4096, 1 << 30),
            ("pin_seconds", 0, 600),
            ("timeout", 0.001, 600),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} is {value!r}: name a number from {low} to {high}")
            if not low <= value <= high:
                raise ValueError(f"{name} is {value!r}: choose {low} to {high}")
        if self.page_bytes % 64:
            raise ValueError(f"page_bytes is {self.page_bytes!r}: choose a multiple of 64")
        for name, most in (("client_name", 64), ("version", 128), ("device", 64), ("socket", 107)):
            value = getattr(self, name)
            if value is None and name in ("device", "socket"):
                continue
            if not isinstance(value, str):
                raise TypeError(f"{name} is {value!r}: name a text")
            if len(value.encode()) > most:
                raise ValueError(f"{name} has {len(value.encode())} bytes: choose at most {most}")
