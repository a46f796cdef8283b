#!/usr/bin/env python3
"""Fails unless a library, shared or static, has exactly the functions that its public header declares."""
import pathlib
import re
import subprocess
import sys


def declared(header: str) -> set:
    text = re.sub(r"/\*.*?\*/", "", pathlib.Path(header).read_text(), flags=re.S)
    return set(re.findall(r"\b(kvl_\w+)\s*\(", text))


def exported(library: str) -> set:
    which = "-g" if library.endswith(".a") else "-D"
    out = subprocess.run(["nm", which, "--defined-only", library], check=True, text=True,
                         capture_output=True).stdout
    symbols = [line.split() for line in out.splitlines()]
    # Not the version node (type A), nor the names of an archive's members.
    return {s[2].split("@")[0] for s in symbols if len(s) == 3 and s[1] != "A"}


if __name__ == "__main__":
    wanted, got = declared(sys.argv[2]), exported(sys.argv[1])
    for name in sorted(wanted - got):
        print(f"{name}: declared in {sys.argv[2]}, not exported")
    for name in sorted(got - wanted):
        print(f"{name}: exported, not declared in {sys.argv[2]}")
    sys.exit(0 if wanted and wanted == got else 1)
