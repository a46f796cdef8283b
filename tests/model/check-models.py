#!/usr/bin/env python3
"""Verifies the Promela models of this folder with spin, and that their mutations are rejected.

    check-models.py [WORD...]    only the runs whose line contains all WORDs

Without words and without KVL_FULL=1 in the environment only every tenth mutation is tried, and what
has only to do with weaker memory than x86's, or takes minutes, is left out.

Prints a line for each run, then a summary. Exit status: 0 where every model holds, was searched as a
whole and has no statement that is never reached, and every mutation breaks the property it should.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
JOBS = 2
DEPTH = 1000000
TIMEOUT = 240  # seconds for one run, on a loaded machine

# Millions of states without WEAK: the compiler's optimisation pays. The others are compiled for longer
# than they are searched.
LARGE = {"doorbell", "magazine", "pin-retire"}

# What pan says. A wait that nobody ends:
STUCK = r"invalid end state"
# What a reader finds in a page; either comes first:
WRONG = r"assertion violated .*(wanted|reading\[0\])"

# model, flags: holds
HOLDS = [
    ("store-buffer", "SB"),
    ("store-buffer", "SB WEAK"),
    ("store-buffer", "SB_RMW"),
    ("store-buffer", "SB_RMW WEAK"),
    ("store-buffer", "SB_RMW NO_FENCE"),  # the locked instruction of x86 is a fence
    ("store-buffer", "MP"),
    ("store-buffer", "MP WEAK"),
    ("store-buffer", "MP NO_RELEASE"),  # TSO keeps stores in order
    ("store-buffer", "COUNT"),
    ("store-buffer", "COUNT WEAK"),
    ("pin-retire", ""),
    ("publish", ""),
    ("magazine", ""),
    ("doorbell", ""),
    ("announce", ""),
    ("index-move", ""),
    ("recovery", ""),
]
# Minutes of them, with the weaker memory.
HOLDS_FULL = [
    ("pin-retire", "ONE_CLIENT"),
    ("pin-retire", "WEAK NO_CRASH"),
    ("publish", "WEAK"),
    ("magazine", "WEAK"),
    ("doorbell", "WEAK N_OPS=4"),
    ("announce", "WEAK"),
    ("index-move", "WEAK"),
    ("recovery", "WEAK"),
    ("recovery", "N_PAGES=2 NO_READER"),
    ("recovery", "N_PAGES=2"),
]

# model, flags, the mutation, what breaks
BREAKS = [
    ("store-buffer", "SB", "NO_FENCE", r"seen\[0\]"),
    ("store-buffer", "SB WEAK", "NO_FENCE", r"seen\[0\]"),
    ("store-buffer", "SB_RMW WEAK", "NO_FENCE", r"seen\[0\]"),
    ("store-buffer", "MP WEAK", "NO_RELEASE", r"flag"),
    ("store-buffer", "COUNT", "LOAD_STORE", r"v==4"),
    ("pin-retire", "WEAK", "NO_FENCE_READER", WRONG),
    ("pin-retire", "", "NO_FENCE_EVICTOR", WRONG),
    ("pin-retire", "WEAK", "NO_FENCE_EVICTOR", WRONG),
    ("pin-retire", "", "NO_SUM", WRONG),
    ("pin-retire", "", "SUM_BEFORE_RETIRING", WRONG),
    ("pin-retire", "", "SUM_ONE", WRONG),
    ("pin-retire", "", "NO_RESTORE", r"state==0"),
    ("pin-retire", "", "NO_STATE_CHECK", WRONG),
    ("pin-retire", "", "NO_KEY_CHECK", r"wanted"),
    ("pin-retire", "", "CHECK_BEFORE_PIN", WRONG),
    ("pin-retire", "", "KEY_BEFORE_STATE", r"wanted"),
    ("pin-retire", "", "UNPIN_BEFORE_USE", WRONG),
    ("pin-retire", "ONE_CLIENT", "PIN_LOAD_STORE", WRONG),
    ("pin-retire", "", "KEY_AFTER_SEALED", r"wanted"),
    ("pin-retire", "WEAK", "SEALED_NO_RELEASE", r"wanted"),
    ("pin-retire", "", "PINS_END_AT_HANGUP", WRONG + r"|v>0"),
    ("pin-retire", "", "RECOVERY_ZEROES_PINS", WRONG + r"|v>0"),
    ("pin-retire", "", "RECOVERY_FREES_RETIRING", WRONG),
    ("pin-retire", "", "RECOVERY_LEAVES_RETIRING", r"state==0"),
    ("pin-retire", "", "RECOVERY_NO_SLOT", r"state==0"),
    ("publish", "", "PIN_AFTER_COMPLETION", r"in_use|8\+page"),
    ("publish", "", "DUPLICATE_PIN_AFTER", r"in_use|v>0"),
    ("publish", "", "DUPLICATE_NO_PIN", r"in_use|v>0"),
    ("publish", "", "DUPLICATE_FREES_OWN", r"==1"),
    ("publish", "WEAK", "SUBMIT_NO_RELEASE", r"in_use|==1|v>0"),
    ("magazine", "", "CLAIM_LOAD_STORE", r"holder"),
    ("magazine", "", "CLAIM_TOP_INDEX", r"holder\[\(got"),
    ("magazine", "", "REFILL_NOT_EMPTY", r"is_free"),
    ("magazine", "", "TAKE_BACK_TRUSTS_RECORD", r"holder"),
    ("magazine", "", "TAKE_BACK_LOAD_STORE", r"holder"),
    ("magazine", "", "FREE_WITHOUT_SETTLING", r"record"),
    ("magazine", "", "DEATH_FORGETS_MAGAZINE", r"mem|record"),
    ("doorbell", "", "NO_FENCE_SUBMIT", STUCK),
    ("doorbell", "", "NO_FENCE_ROOM", STUCK),
    ("doorbell", "", "NO_FENCE_COMPLETE", STUCK),
    ("doorbell", "", "NO_FENCE_CLIENT_SLEEP", STUCK),
    ("doorbell", "WEAK", "NO_FENCE_DAEMON_SLEEP", STUCK),
    ("doorbell", "", "SLEEPS_BY_STORE", STUCK),
    ("doorbell", "", "NO_RECHECK_CLIENT", STUCK),
    ("doorbell", "", "NO_RECHECK_DAEMON", STUCK),
    ("doorbell", "", "CLIENT_LOOKS_FIRST", STUCK),
    ("doorbell", "", "DAEMON_LOOKS_FIRST", STUCK),
    ("doorbell", "", "RING_BEFORE_TAIL", STUCK),
    ("doorbell", "", "NO_RING_FOR_ROOM", STUCK),
    ("doorbell", "", "SLEEP_IGNORES_ROOM", STUCK),
    ("doorbell", "", "RING_ONLY_FOR_COMPLETIONS", STUCK),
    ("doorbell", "", "NEWS_ONLY_WHERE_FULL", STUCK),
    ("doorbell", "WEAK", "SUB_TAIL_NO_RELEASE", r"v/2"),
    ("doorbell", "WEAK", "COMP_TAIL_NO_RELEASE", r"n_seen"),
    ("doorbell", "", "HEAD_BEFORE_COPY", r"v/2"),
    ("doorbell", "", "COMPLETION_BEFORE_HEAD", r"n_seen"),
    ("index-move", "", "NEXT_FIRST", r"is_gone"),
    ("index-move", "", "LEAVE_FIRST", r"is_gone"),
    ("index-move", "", "MOVE_BACK", r"is_gone"),
    ("index-move", "", "RECOVERY_KEEPS_BOTH", r"mem\[0\]|mem\[1\]"),
    ("index-move", "WEAK", "NO_RELEASE", r"is_gone"),
    ("announce", "", "NO_WAKE", STUCK),
    ("announce", "", "WAKE_ONE", STUCK),
    ("announce", "", "WAKE_BEFORE_CHANGE", STUCK),
    ("announce", "", "NO_COMPARE", STUCK),
    ("announce", "", "NOT_WITHDRAWN_AT_DEATH", STUCK),
    ("announce", "", "SAME_GENERATION", STUCK),
    ("announce", "", "SLOT_AFTER_WORD", r"was_told"),
    ("announce", "WEAK", "WORD_NO_RELEASE", r"was_told"),
    ("announce", "WEAK", "SLOT_NO_RELEASE", r"word==2"),
    ("recovery", "", "CURSOR_BEFORE_ENTRY", r"mem\[2\]"),
    ("recovery", "", "TAIL_BEFORE_CURSOR", r"mem\[3\].*==n\)"),
    ("recovery", "", "NO_TWIN", r"head\[selector\]"),
    ("recovery", "", "NO_COMP_TAIL", r"comp\[selector\]"),
    ("recovery", "", "REPLAY_FAILS", r"mem\[2\]"),
    ("recovery", "", "RECORD_LAST", r"owned\[page\]|acked"),
    ("recovery", "", "MAGAZINE_BEFORE_RECORD", r"record\[page\]"),
    ("recovery", "", "FREE_BEFORE_SUM", r"reading\[0\]"),
    ("recovery", "", "LEAVES_RETIRING", r"acked\[0\]"),
    ("recovery", "", "FREES_RETIRING", r"reading\[0\]"),
    ("recovery", "", "TRUSTS_LINE", r"in_use\[0\]|reading\[0\]"),
    ("recovery", "", "CLEARS_SLOT", r"acked\[0\]"),
    ("recovery", "", "FREES_GRANTED", r"owned\[page\]|record\[page\]"),
    ("recovery", "", "LEAVES_LINE", r"acked\[0\]"),
    ("recovery", "", "ZEROES_PINS", r"reading\[0\]|v>0"),
]
# Never reached by design: what follows a loop without end, and a crash where there is none.
UNREACHED_FINE = re.compile(r"-end-")
NO_CRASH_FINE = re.compile(r'-end-|"kill\[2\]|"D_STEP')


def run(args, cwd):
    done = subprocess.run(args, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=TIMEOUT)
    return done.returncode, done.stdout


def pan(model, flags, optimise):
    """pan's output, or what went wrong before it."""
    with tempfile.TemporaryDirectory(prefix="kvl-model-") as folder:
        defines = [f"-D{flag}" for flag in flags.split()]
        code, text = run(["spin", "-a", *defines, str(HERE / f"{model}.pml")], folder)
        if code or not pathlib.Path(folder, "pan.c").exists() or re.search(r"\berror\b", text, re.I):
            return "spin: " + text
        # No partial-order reduction: it isn't valid where a rendezvous ends an `unless`.
        code, text = run(["gcc", optimise, "-w", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=3000", "-o",
                          "pan", "pan.c"], folder)
        if code:
            return "gcc: " + text
        return run(["./pan", f"-m{DEPTH}"], folder)[1]


def verdict(text, flags, expected):
    """What is wrong with the run, or ''."""
    errors = re.search(r"errors: (\d+)", text)
    if not errors:
        return text.strip()[-2000:] or "no output"
    if re.search(r"max search depth too small|out of memory|aborted", text):
        return "search not completed"
    found = re.search(r"^pan:\d+: (.*)$", text, re.M)
    if expected is None:
        if int(errors.group(1)):
            return found.group(1)[:300] if found else "errors"
        fine = NO_CRASH_FINE if "NO_CRASH" in flags else UNREACHED_FINE
        unreached = [line.strip() for line in text.splitlines()
                     if re.match(r"\s+\S.*, state \d+, ", line) and not fine.search(line)]
        if "Search not completed" in text:
            return "search not completed"
        return "never reached: " + "; ".join(unreached) if unreached else ""
    if not int(errors.group(1)):
        return "NOT REJECTED"
    if not found or not re.search(expected, found.group(1)):
        return f"rejected for another reason: {found.group(1)[:300] if found else text[-300:]}"
    return ""


def job(model, flags, mutation, expected, full):
    began = time.monotonic()
    optimise = "-O2" if expected is None else "-O1"
    if not full and model not in LARGE:
        optimise = "-O0"
    try:
        text = pan(model, f"{flags} {mutation}", optimise)
        wrong = verdict(text, flags, expected)
    except subprocess.TimeoutExpired:
        text, wrong = "", f"took more than {TIMEOUT} s"
    states = re.search(r"(\d+) states, stored", text)
    line = f"{model} {flags}".strip() + (f", mutation {mutation}" if mutation else "")
    result = wrong and "FAILED: " + wrong or ("rejected" if mutation else "holds")
    print(f"{line}: {result} ({states.group(1) if states else 0} states, "
          f"{time.monotonic() - began:.1f} s)", flush=True)
    return not wrong


def main(words):
    for program in ("spin", "gcc"):
        if not shutil.which(program):
            print(f"check-models: {program} isn't installed: sh packaging/install-deps.sh test")
            return 1
    # The long ones first.
    full = words or os.environ.get("KVL_FULL") == "1"
    holds = HOLDS + HOLDS_FULL if full else HOLDS
    mutations = BREAKS if full else BREAKS[::10]
    jobs = [(model, flags, "", None) for model, flags in reversed(holds)] + mutations
    jobs = [j for j in jobs if all(word in " ".join(map(str, j[:3])) for word in words)]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        results = list(pool.map(lambda j: job(*j, full), jobs))
    n_mutations = sum(1 for j in jobs if j[2])
    print(f"{len(jobs) - n_mutations} models, {n_mutations} mutations: "
          f"{results.count(True)} as expected, {results.count(False)} not")
    return 0 if jobs and all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
