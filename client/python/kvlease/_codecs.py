"""Codecs of pages below the device, as the settings of an engine name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import kvlease


@dataclass(frozen=True)
class Codecs:
    """The settings host_codec and disk_codec, in the words of Connection.namespace(): 'int8', or
    ranges of layers, '0-7:none,8-23:int8,24-:int4'. None: as kvleased has it for the tenant."""

    host_codec: str | None = None
    disk_codec: str | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Codecs:
        """Those of an engine's settings, of which others aren't looked at; ValueError for what is
        no text. Whether kvleased knows the codec is said when a namespace is opened."""
        found = {each.name: given[each.name] for each in fields(cls) if each.name in given}
        for name, value in found.items():
            if value is not None and not (isinstance(value, str) and value):
                raise ValueError(
                    f"{name} is a codec's name, 'int8', or one for each range of layers, "
                    f"'0-7:none,8-:int8', not {value!r}"
                )
        return cls(**found)

    def refuse(self, n_groups: int, layer_bytes: Sequence[int], page_bytes: int) -> None:
        """ValueError for codecs by layer where pages can't be divided into layers.

        n_groups: namespaces of the model, each with some of its layers. layer_bytes: of the parts
        of a page, one behind the other, a layer's each; empty where they lie otherwise. page_bytes:
        of a page, padding included.
        """
        for name, value in self._given().items():
            if ":" not in value:
                continue
            if n_groups > 1:
                why = f"its layers are in {n_groups} groups, each with layers of its own"
            elif not layer_bytes:
                why = "its layers have no parts of a page of their own"
            elif len(set(layer_bytes)) > 1:
                why = f"its layers' parts of a page aren't equally large: {sorted(layer_bytes)}"
            elif sum(layer_bytes) != page_bytes:
                why = f"pages are padded, from {sum(layer_bytes)} to {page_bytes} bytes"
            else:
                continue
            raise ValueError(
                f"{name} {value!r} is by layer, which this model can't have: {why}. Name one codec "
                "for all layers"
            )

    def open(
        self, connection: kvlease.Connection, layout: kvlease.Layout, device: str | None
    ) -> kvlease.Namespace:
        """The layout's namespace on a device. ValueError, with the settings, where it can't have
        these codecs, or has others already."""
        given = self._given()
        try:
            return connection.namespace(
                layout=layout,
                device=device,
                host_codec=given.get("host_codec", 0),
                disk_codec=given.get("disk_codec", 0),
            )
        except (kvlease.Invalid, kvlease.LayoutMismatch) as error:
            if not given:
                raise
            settings = ", ".join(f"{name} {value!r}" for name, value in given.items())
            raise ValueError(f"pages can't be kept with {settings}: {error}") from error

    def _given(self) -> dict[str, str]:
        both = {"host_codec": self.host_codec, "disk_codec": self.disk_codec}
        return {name: value for name, value in both.items() if value is not None}
