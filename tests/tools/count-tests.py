#!/usr/bin/env python3
"""Counts meson's test results: PART LOG.json OUT; prints what failed, writes "passed failed skipped"."""
import json
import re
import sys

GOOD = {"OK", "EXPECTEDFAIL"}
SHOWN = 20000  # characters of a failed test's output


def main(part: str, log: str, out: str) -> None:
    passed = failed = skipped = 0
    for line in open(log, encoding="utf-8", errors="replace"):
        test = json.loads(line)
        output = test.get("stdout", "") + test.get("stderr", "")
        # A test program that skips some of its cases says so in its output.
        for case in sorted(set(re.findall(r"^\[  SKIPPED \] (\w+)$", output, re.M))):
            print(f"skipped: {part}: {test['name']}: {case}")
            skipped += 1
        if test["result"] in GOOD:
            passed += 1
        elif test["result"] == "SKIP":
            print(f"skipped: {part}: {test['name']}")
            skipped += 1
        else:
            failed += 1
            print(f"FAILED: {part}: {test['name']} ({test['result']})")
            print(output[-SHOWN:])
    if passed + failed + skipped == 0:
        failed = 1
        print(f"FAILED: {part}: {log} has no test")
    with open(out, "w", encoding="ascii") as f:
        f.write(f"{passed} {failed} {skipped}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
