#!/usr/bin/env python3
"""
Runs mutate.py on a small tree, whose only test calls one of two functions: mutants of that one are found, those of the
other survive.

  test-mutate.py CC [ARG]...
"""
from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile

FILES = {
    "policy/sum.c": "int sum(int a, int b);\nint unused(int a);\n\n"
                    "int sum(int a, int b)\n{\n        return a + b;\n}\n\n"
                    "int unused(int a)\n{\n        return a == 7; /* a + b */\n}\n",
    "test.c": "int sum(int a, int b);\n\nint main(void)\n{\n        return sum(1, 2) != 3;\n}\n",
}


def write_build(top: pathlib.Path, build: pathlib.Path, cc: str) -> None:
    (build / "meson-info").mkdir(parents=True)
    (build / "build.ninja").write_text(
        f"rule cc\n command = {cc} -c $in -o $out\nrule link\n command = {cc} $in -o $out\n"
        "build sum.o: cc ../policy/sum.c\nbuild test.o: cc ../test.c\nbuild test_sum: link sum.o test.o\n")
    program = str(build / "test_sum")
    info = {
        "intro-tests.json": [{"name": "sum", "cmd": [program], "env": {}, "workdir": None, "timeout": 30,
                              "suite": ["toy:unit"], "depends": ["sum@exe"]}],
        "intro-targets.json": [{"id": "sum@exe", "filename": [program],
                                "target_sources": [{"sources": [str(top / "test.c")]}]}],
    }
    for name, data in info.items():
        (build / "meson-info" / name).write_text(json.dumps(data))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        top = pathlib.Path(folder).resolve()
        for name, text in FILES.items():
            (top / name).parent.mkdir(exist_ok=True)
            (top / name).write_text(text)
        subprocess.run(["git", "init", "-q", top], check=True)
        subprocess.run(["git", "-C", top, "add", *FILES], check=True)
        write_build(top, top / "build", " ".join(sys.argv[1:] or ["cc"]))
        subprocess.run(["ninja", "-C", top / "build"], check=True, stdout=subprocess.DEVNULL)
        program = pathlib.Path(__file__).with_name("mutate.py")
        command = [sys.executable, program, top / "build", "--trees", "policy", "--count", "9", "--json", top / "table"]
        subprocess.run(command, check=True)
        table = json.loads((top / "table").read_text())
        again = subprocess.run([*command, "--again", top / "table"], check=True, capture_output=True, text=True).stdout
        states = {(m["line"], m["kind"], m["after"].strip()): (m["state"], m["found_by"]) for m in table}
        assert states == {
            (6, "operator", "return a - b;"): ("found", "sum"),
            (11, "operator", "return a != 7; /* a + b */"): ("survived", ""),
            (11, "constant", "return a == 8; /* a + b */"): ("survived", ""),
        }, states
        assert "3 mutants, 1 found" in again, again
        assert (top / "policy/sum.c").read_text() == FILES["policy/sum.c"], "the source was changed"
    print("mutants: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
