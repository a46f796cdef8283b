"""What users may choose, in the extra configuration of SGLang's cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kvlease import _verify
from kvlease._codecs import Codecs

# Settings of the same dictionary that SGLang reads.
_OF_SGLANG = frozenset(
    {"backend_name", "module_path", "class_name", "interface_v1", "allocator", "tp_lcm_size"}
)


@dataclass(frozen=True)
class Options:
    """Settings of kvlease. All are optional."""

    socket: str | None = None
    """None: $KVLEASE_SOCKET, else /run/kvlease/sock."""
    client_name: str | None = None
    """Shown by kvleasectl; None: sglang and the model's name."""
    weights: str | None = None
    """Names the weights; None: all tensors of the model are read."""
    salt: str = ""
    """Keeps equal prompts of others apart."""
    timeout: float = 2.0
    """Seconds that a call may wait for kvleased. After a longer wait it isn't asked for 5 s."""
    verify: float = 0.0
    """Share of the prompts that are found, 0 to 1, which are computed all the same and compared."""
    codecs: Codecs = field(default_factory=Codecs)
    """host_codec and disk_codec: how pages are kept below the device."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Those of a dictionary that SGLang's settings may be in; ValueError names a setting that
        isn't known, or can't be."""
        own = {each.name for each in fields(cls)} - {"codecs"}
        of_codecs = {each.name for each in fields(Codecs)}
        unknown = sorted(set(given) - own - of_codecs - _OF_SGLANG)
        if unknown:
            raise ValueError(
                f"kvlease doesn't know the settings {', '.join(map(repr, unknown))}; it knows "
                f"{', '.join(sorted(own | of_codecs))}"
            )
        chosen = {name: given[name] for name in own if name in given}
        options = cls(**chosen, codecs=Codecs.read(given))
        _verify.check_share(options.verify)
        return options
