"""packaging/engine-packages.sh, and the stubs that it lets a torch for CUDA be imported with."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import cuda_stubs
from conftest import TREE

SCRIPT = TREE / "packaging/engine-packages.sh"
LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


def compile_library(path: Path, source: str, *words: str | Path) -> None:
    """With its file's name as its soname."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, f"-Wl,-soname,{path.name}"]
    arguments = map(str, [*command, "-x", "none", *words])
    subprocess.run(list(arguments), input=source, text=True, check=True)


def loads(path: Path) -> bool:
    """In a process of its own, with all functions bound at once, as torch is."""
    words: list[str | Path] = [sys.executable, "-c", LOAD, path]
    environment = os.environ | {"LD_BIND_NOW": "1"}
    return subprocess.run(words, env=environment, capture_output=True, check=False).returncode == 0


def test_what_is_missing_is_replaced(tmp_path: Path) -> None:
    """Whatever its name is: by torch, by a package that is linked to it, and by no other one."""
    gone, site = tmp_path / "gone", tmp_path / "site"
    for name in ("curand", "newthing", "tbb", "cuda"):
        compile_library(gone / f"lib{name}.so.1", f"void {name}Create(void) {{}}")
    torch = site / "torch/lib/libtorch_own.so"
    calls = "void curandCreate(void); void torch_run(void) { curandCreate(); }"
    compile_library(torch, calls, gone / "libcurand.so.1", "-Wl,-rpath,$ORIGIN")
    beside = site / "engine/_C.so"
    calls = "void newthingCreate(void); void torch_run(void); void run(void) "
    calls += "{ torch_run(); newthingCreate(); }"
    needed = (torch, gone / "libnewthing.so.1", "-Wl,-rpath,$ORIGIN/../torch/lib")
    compile_library(beside, calls, *needed, "-Wl,--unresolved-symbols=ignore-all")
    calls = "void tbbCreate(void); void pool(void) { tbbCreate(); }"
    compile_library(site / "other/pool.so", calls, gone / "libtbb.so.1")
    calls = "void cudaCreate(void); void driver(void) { cudaCreate(); }"
    compile_library(site / "torch/lib/liblater.so", calls, gone / "libcuda.so.1")
    assert not loads(torch) and not loads(beside)
    cuda_stubs.main(site)
    assert loads(torch) and loads(beside)
    stubs = {path.name for path in site.rglob("*.so.1")}
    assert stubs == {"libcurand.so.1", "libnewthing.so.1"}


def make_wheel(folder: Path, code: str) -> Path:
    """A torch, as pip takes it from a folder. Returns a file of requirements."""
    with zipfile.ZipFile(folder / "torch-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("torch/__init__.py", code)
        info = "torch-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tag)
        archive.writestr(f"{info}/RECORD", "")
    requirements = folder / "requirements.txt"
    requirements.write_text(f"--no-index\n--find-links {folder}\ntorch==1.0\n")
    return requirements


def keep(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    words: list[str | Path] = ["sh", SCRIPT, sys.executable, "tried", "1", "1"]
    words.append(make_wheel(folder, code))
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def test_what_cannot_be_imported_is_not_kept(tmp_path: Path) -> None:
    done = keep(tmp_path, "raise ImportError('libgone.so.1: cannot open shared object file')")
    assert done.returncode == 1 and not done.stdout
    assert "libgone.so.1" in done.stderr and "it isn't kept" in done.stderr
    assert not list((tmp_path / "cache/kvlease").iterdir())
    done = keep(tmp_path, "")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip(), "torch/__init__.py").exists()
