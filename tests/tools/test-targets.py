#!/usr/bin/env python3
"""Names the targets that the tests of a suite need: test-targets.py BUILD_DIR SUITE"""
import json
import pathlib
import sys

build, suite = pathlib.Path(sys.argv[1]), sys.argv[2]
info = build / "meson-info"
tests = json.loads((info / "intro-tests.json").read_text())
targets = json.loads((info / "intro-targets.json").read_text())
files = {t["id"]: t["filename"] for t in targets}
root = build.resolve()
wanted = set()
for test in tests:
    if any(s.split(":")[-1] == suite for s in test["suite"]):
        for target in test["depends"]:
            wanted.update(files[target])
print("\n".join(sorted(str(pathlib.Path(f).resolve().relative_to(root)) for f in wanted)))
