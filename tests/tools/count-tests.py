#!/usr/bin/env python3
"""Counts meson's test results: PART LOG.json OUT AGAIN; prints the tests that failed.

OUT gets "passed failed skipped". AGAIN gets the names of failed tests for a second try: none where
more than 3 failed, and none with a report of a sanitizer or valgrind.
"""

import json
import re
import sys

GOOD = {"OK", "EXPECTEDFAIL"}
TRIED_AGAIN = 3
SHOWN = 20000  # characters of a failed test's output


def main(part: str, log: str, out: str, again: str) -> None:
    passed = failed = skipped = 0
    names = []
    with open(log, encoding="utf-8", errors="replace") as f:
        tests = [json.loads(line) for line in f]
    for test in tests:
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
            if not re.search(r"Sanitizer|runtime error:|^==\d+==", output, re.M):
                names.append(test["name"].rpartition(" / ")[2])
    if passed + failed + skipped == 0:
        failed = 1
        print(f"FAILED: {part}: {log} has no test")
    with open(out, "w", encoding="ascii") as f:
        f.write(f"{passed} {failed} {skipped}\n")
    with open(again, "w", encoding="utf-8") as f:
        f.write("\n".join(names if failed <= TRIED_AGAIN else []))


if __name__ == "__main__":
    main(*sys.argv[1:])
