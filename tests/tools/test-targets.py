#!/usr/bin/env python3
"""Names the targets that tests of some suites need: test-targets.py BUILD_DIR [--suite NAME]... [--no-suite NAME]...

Suites are chosen as by `meson test`.
"""
import argparse
import json
import pathlib

parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--suite", action="append", default=[])
parser.add_argument("--no-suite", action="append", default=[])
args = parser.parse_args()
info = args.build / "meson-info"
tests = json.loads((info / "intro-tests.json").read_text())
targets = json.loads((info / "intro-targets.json").read_text())
files = {t["id"]: t["filename"] for t in targets}
root = args.build.resolve()
wanted = set()
for test in tests:
    suites = {s.split(":")[-1] for s in test["suite"]}
    if suites & set(args.no_suite) or args.suite and not suites & set(args.suite):
        continue
    for target in test["depends"]:
        wanted.update(files[target])
print("\n".join(sorted(str(pathlib.Path(f).resolve().relative_to(root)) for f in wanted)))
