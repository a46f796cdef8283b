"""Stub libraries for a torch that was built for CUDA, on a machine without: cuda_stubs.py SITE.

SITE: a folder of packages with torch and nvidia-cuda-runtime in it. PyPI's torch is linked to the
libraries of CUDA, 3 GB of packages, and import looks for all of them. What torch's libraries, and
those linked to them, need, and neither SITE nor a C or C++ compiler's runtime has, is replaced by
libraries that have the names and the symbols asked for; each of their functions says its name and
aborts. Nothing on the CPU calls one. What this machine has of CUDA doesn't count: it may go. The
runtime (libcudart) is the real one: import calls it, and it finds no device. Needs binutils and
gcc.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

# What every Debian has, and any wheel may be linked to; and the driver's libcuda, which torch opens
# by name where it is.
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+|z|cuda))\.so\.\d+")


def run(*command: str | Path) -> str:
    """What a program prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def is_library(path: Path) -> bool:
    """One in ELF."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def needed(library: Path) -> set[str]:
    """Sonames that a library is linked to."""
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", library)))


def symbols(library: Path, kind: str) -> dict[str, str]:
    """Versions of its symbols, '' for those without, by name. kind: undefined or defined."""
    lines = run("nm", "-D", "-P", f"--{kind}-only", library).splitlines()
    names = (line.split()[0].replace("@@", "@").partition("@") for line in lines)
    return {name: version for name, _, version in names}


def prefix(soname: str) -> str:
    """What the names of a library's functions begin with, in lower case."""
    return soname.partition(".")[0].removeprefix("lib").removesuffix("_host").lower()


def build(soname: str, asked: dict[str, str], out: Path) -> None:
    """A library with these functions. Those asked for without a version are content with any."""
    with tempfile.TemporaryDirectory() as work:
        source, versions = Path(work, "stub.c"), Path(work, "stub.map")
        source.write_text(
            "#include <stdio.h>\n#include <stdlib.h>\n"
            "static void stub(const char *name)\n"
            '{ fprintf(stderr, "%s: a stub, there is no CUDA here\\n", name); abort(); }\n'
            + "".join(f'void {name}(void) {{ stub("{name}"); }}\n' for name in sorted(asked))
        )
        version = next(filter(None, asked.values()), soname)
        versions.write_text(f"{version} {{ global: *; }};\n")
        run(
            *("gcc", "-shared", "-fPIC", "-o", out / soname),
            *(f"-Wl,-soname,{soname}", f"-Wl,--version-script,{versions}", source),
        )


def main(site: Path) -> None:
    """Puts the stubs where torch looks for its own libraries."""
    out = site / "torch/lib"
    needs = {path: needed(path) for path in site.rglob("*.so*") if is_library(path)}
    of_torch = {path.name for path in needs if path.parent == out}
    libraries = [path for path in needs if path.parent == out or needs[path] & of_torch]
    missing = {name for path in libraries for name in needs[path]} - {path.name for path in needs}
    sonames = {name for name in missing if not SYSTEM.fullmatch(name)}
    own = {name for path in libraries for name in symbols(path, "defined")}
    of_library: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for path in libraries:
        for name, version in symbols(path, "undefined").items():
            # cublasLtCreate is cublasLt's, not cublas': the longest name has it.
            candidates = [s for s in sonames if name.lower().startswith(prefix(s))]
            if candidates and name not in own:
                of_library[max(candidates, key=len)][name] = version
    for soname in sonames:
        build(soname, of_library[soname], out)
    print(f"{len(sonames)} stub libraries, {sum(map(len, of_library.values()))} symbols")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
