"""Codecs as the settings of an engine name them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conftest import MakeDaemon
from test_calls import LAYERS

import kvlease
from kvlease._codecs import Codecs

BY_LAYER = "0:none,1-:int4"


def test_settings() -> None:
    assert Codecs.read({}) == Codecs(None, None)
    assert Codecs.read({"host_codec": None, "socket": 7}) == Codecs()
    assert Codecs.read({"host_codec": "int8", "disk_codec": BY_LAYER}) == Codecs("int8", BY_LAYER)
    wrong: list[Any] = [1, kvlease.Codec.INT8, True, "", b"int8", ["int8"], {"0": "int8"}]
    for value in wrong:
        for name in ("host_codec", "disk_codec"):
            with pytest.raises(ValueError, match=f"^{name} is a codec's name"):
                Codecs.read({name: value})


def test_pages_that_have_no_layers() -> None:
    for codecs in (Codecs(), Codecs("int8"), Codecs("none", "int4"), Codecs(BY_LAYER)):
        codecs.refuse(1, [2048, 2048], 4096)
    for codecs in (Codecs(), Codecs("int8")):
        codecs.refuse(2, [2048, 1024], 4096)
    for codecs in (Codecs(BY_LAYER), Codecs("int8", BY_LAYER)):
        with pytest.raises(ValueError, match="in 2 groups"):
            codecs.refuse(2, [2048, 2048], 4096)
        with pytest.raises(ValueError, match=r"equally large: \[1024, 2048\]"):
            codecs.refuse(1, [2048, 1024], 3072)
        with pytest.raises(ValueError, match="no parts of a page"):
            codecs.refuse(1, [], 4096)
        with pytest.raises(ValueError, match="from 3072 to 4096 bytes"):
            codecs.refuse(1, [1536, 1536], 4096)
    with pytest.raises(ValueError, match=f"^disk_codec '{BY_LAYER}' is by layer"):
        Codecs("int8", BY_LAYER).refuse(2, [2048, 2048], 4096)


def test_namespaces_have_them(make_daemon: MakeDaemon) -> None:
    """What isn't given is as the tenant has it; what is wrong is said with the setting."""
    daemon = make_daemon(
        device="memory = 2MiB\nextent = 2MiB\nhost_memory = 4MiB",
        tenant="limit = 2MiB\nhost_codec = int8",
    )

    def rows(namespace: kvlease.Namespace) -> list[tuple[str, int, int]]:
        return [
            (row["codec"], row["first_layer"], row["last_layer"])
            for row in daemon.ctl_json("codecs")["codecs"]
            if row["ns"] == namespace.name
        ]

    with kvlease.connect(daemon.socket) as conn, kvlease.connect(daemon.socket) as other:
        with Codecs(BY_LAYER).open(conn, LAYERS, "host") as namespace:
            assert rows(namespace) == [("none", 0, 0), ("int4", 1, 1)]
            with pytest.raises(
                ValueError, match=r"^pages can't be kept with host_codec 'fp8': .* not as fp8"
            ):
                Codecs("fp8").open(other, LAYERS, "host")
            Codecs().open(other, LAYERS, "host").close()
        tenants = replace(LAYERS, model="as the tenant has it")
        with Codecs().open(conn, tenants, "host") as namespace:
            assert rows(namespace)[0][0] == "int8"
        wrong = {"int5": "codec 'int5' isn't known", "0:none": "end at layer 0 of the layout's 2"}
        for codec, sentence in wrong.items():
            with pytest.raises(ValueError, match=f"with host_codec '{codec}': .*{sentence}"):
                Codecs(codec).open(conn, replace(LAYERS, model="m"), "host")
        with pytest.raises(kvlease.Invalid):
            Codecs().open(conn, replace(LAYERS, plane_page_bytes=4097), "host")
