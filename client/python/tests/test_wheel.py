"""The wheel of packaging/wheel.sh: what is in it, and that it runs in fresh environments."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import TREE, Daemon

import kvlease

SCRIPT = TREE / "packaging/wheel.sh"
# By package of Debian: what its library says of itself in the extension, and a word of its licence.
BUNDLED = {
    "libprotobuf-c-dev": (b"protobuf_c", "protobuf-c"),
    "libssl-dev": (b"crypto/evp", "OpenSSL"),
    "zlib1g-dev": (b" inflate 1.", "zlib"),
    "libzstd-dev": (b"ZSTD_", "Zstd"),
}


def run(*words: str | Path, socket: Path | None = None) -> str:
    """What a command prints; it succeeds."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    if socket:
        environment["KVLEASE_SOCKET"] = str(socket)
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def pythons() -> list[str]:
    """The one that made this environment, and those of PATH that are newer and start."""
    base = f"python3.{sys.version_info.minor}"
    found = {base: getattr(sys, "_base_executable", sys.executable)}
    for minor in range(sys.version_info.minor + 1, 20):
        name = f"python3.{minor}"
        path = shutil.which(name)
        if path and subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode:
            continue  # a shim of a version that isn't chosen
        if path:
            found[name] = path
    return list(found.values())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once."""
    directory = tmp_path_factory.mktemp("wheel") / "made"
    run("sh", SCRIPT, directory)
    (path,) = directory.iterdir()
    return path


def test_contents(wheel: Path) -> None:
    version = kvlease.version()
    libc = r"manylinux_2_\d+_" + platform.machine()
    assert re.fullmatch(rf"kvlease-{version}-cp311-abi3-{libc}\.whl", wheel.name)
    info = f"kvlease-{version}.dist-info"
    package = TREE / "client/python/kvlease"
    modules = {
        str(path.relative_to(package))
        for path in package.rglob("*.py*")
        if path.suffix in (".py", ".pyi")
    } | {"py.typed"}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        licenses = {name for name in names if name.startswith("kvlease/licenses/")}
        assert names - licenses == {
            *(f"kvlease/{name}" for name in modules | {"_kvlease.abi3.so"}),
            *(f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE")),
            f"{info}/entry_points.txt",  # vLLM looks there
        }
        assert archive.read(f"{info}/licenses/LICENSE") == (TREE / "LICENSE").read_bytes()
        extension = archive.read("kvlease/_kvlease.abi3.so")
        for library, (inside, word) in BUNDLED.items():
            if inside in extension and Path(f"/usr/share/doc/{library}/copyright").exists():
                assert word in archive.read(f"kvlease/licenses/{library}.txt").decode()
        wheel_lines = archive.read(f"{info}/WHEEL").decode().splitlines()
        metadata = archive.read(f"{info}/METADATA").decode()
    tags = [line for line in wheel_lines if line.startswith("Tag:")]
    assert tags == [f"Tag: {wheel.stem.removeprefix(f'kvlease-{version}-')}"]
    assert "License-Expression: Apache-2.0\n" in metadata
    assert "Requires-Python: >=3.11\n" in metadata
    assert all("extra ==" in line for line in re.findall("^Requires-Dist: .*", metadata, re.M))
    assert set(re.findall("^Provides-Extra: (.*)", metadata, re.M)) == {
        "llama",
        "transformers",
        "vllm",
    }
    assert metadata.endswith((TREE / "client/python/README.md").read_text())


def test_it_needs_libc_alone(wheel: Path, tmp_path: Path) -> None:
    """What is bundled keeps its names to itself: another libcrypto may be in the process."""
    with zipfile.ZipFile(wheel) as archive:
        extension = archive.extract("kvlease/_kvlease.abi3.so", tmp_path)
    dynamic = run("readelf", "-d", extension)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*?)\.so", dynamic))
    assert needed <= {"libc", "libdl", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
    defined = run("nm", "-D", "--defined-only", extension).split()
    assert defined[2::3] == ["PyInit__kvlease"]


@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).name)
def test_a_fresh_environment(
    wheel: Path, python: str, tmp_path: Path, shared_daemon: Daemon
) -> None:
    run(python, "-m", "venv", tmp_path / "venv")
    own = tmp_path / "venv/bin/python"
    run(own, "-m", "pip", "install", "--disable-pip-version-check", "--no-index", wheel)
    said = run(own, "-I", "-W", "error", "-m", "kvlease", socket=shared_daemon.socket)
    assert f"version    {kvlease.version()}\n" in said
    assert "reachable  yes\n" in said
    for _ in range(2):
        said = run(own, "-I", TREE / "client/python/examples/hello.py", socket=shared_daemon.socket)
    assert said.count("found page") == 3
    where = run(own, "-I", "-c", "import kvlease; print(kvlease.__file__)")
    assert where.startswith(str(tmp_path))


def test_command_line() -> None:
    def status(*arguments: str) -> int:
        return subprocess.run(
            ["sh", SCRIPT, *arguments], capture_output=True, check=False
        ).returncode

    assert [status("--help"), status(), status("--what"), status("a", "b")] == [0, 2, 2, 2]
