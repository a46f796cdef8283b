#!/usr/bin/env python3
"""What programs that are linked with libkvlease rest on, against what was recorded in libkvlease.abi.

    abi.py             fails where a function, or a type of kvlease.h, is another than recorded, or gone
    abi.py --update    records what is there

The functions' machine code isn't looked at: a library is made of kvlease.h alone, with all that debuggers
know of its types and empty functions, for abidw to read. That libkvlease has the same functions, of the
same types, is the compiler's business and check-symbols.py's.

New functions are no failure: record them with a release. So is what programs that were built before don't
notice, such as a member at the end of a struct that begins with its size, but that has to be recorded to
pass. Whatever else changes needs another soversion, and a new record. Types are those of x86-64.

Exit status: 0 the same, 1 not, 77 (skipped) without abigail-tools or on another machine.
"""
import argparse
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = TOP / "client/lib"
RECORD = TOP / "tests/abi/libkvlease.abi"


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def functions(header, compiler):
    """Its declarations, each without the last semicolon."""
    text = run(*compiler, "-E", "-P", str(header))
    own = text[text.index("struct kvl_"):]
    found = re.findall(r"^[^{}#;]*?\bkvl_\w+\s*\([^{};]*\)(?=;)", own, re.MULTILINE)
    return [f for f in found if "typedef" not in f]


def build(directory, compiler):
    header = LIBRARY / "kvlease.h"
    declared = functions(header, compiler)
    names = set(re.findall(r"^\s+(kvl_\w+);", (LIBRARY / "libkvlease.map").read_text(), re.MULTILINE))
    found = {re.search(r"\b(kvl_\w+)\s*\(", f)[1] for f in declared}
    if not names or names != found:
        sys.exit(f"abi.py: in kvlease.h or in libkvlease.map alone: {' '.join(sorted(names ^ found))}")
    bodies = "\n".join(f'__attribute__((visibility("default"))) {f} {{ __builtin_trap(); }}'
                       for f in declared)
    source = directory / "kvlease-abi.c"
    source.write_text(f"#include <kvlease.h>\n{bodies}\n")
    run(*compiler, "-w", "-g", "-O0", "-fno-eliminate-unused-debug-types", "-fPIC", "-shared",
        f"-I{LIBRARY}", f"-Wl,--version-script,{LIBRARY}/libkvlease.map", "-Wl,-soname,libkvlease.so.0",
        "-o", str(directory / "library"), str(source))


def describe(directory):
    run("abidw", "--exported-interfaces-only", "--load-all-types", "--no-corpus-path", "--no-comp-dir-path",
        "--no-show-locs", "--type-id-style", "hash", "--out-file", str(directory / "raw"),
        str(directory / "library"))
    text = (directory / "raw").read_text()
    # Where, and against what, it was built.
    text = re.sub(r" path='[^']*/", " path='", text)
    (directory / "now").write_text(re.sub(r" *<elf-needed>.*?</elf-needed>\n", "", text, flags=re.DOTALL))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--update", action="store_true", help="record what is there")
    update = p.parse_args().update
    if not shutil.which("abidw") or platform.machine() != "x86_64":
        print("skipped: abigail-tools isn't installed, or this is no x86-64")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        build(directory, os.environ.get("CC", "cc").split())
        describe(directory)
        if update:
            shutil.copy(directory / "now", RECORD)
            return
        done = subprocess.run(["abidiff", "--no-added-syms", "--no-show-locs", RECORD, directory / "now"],
                              check=False)
    if done.returncode != 0:
        sys.exit("abi.py: programs that were built with the recorded libkvlease may break. Where none does "
                 "(--help says when): python3 tests/abi/abi.py --update")


if __name__ == "__main__":
    main()
