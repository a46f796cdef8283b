#!/usr/bin/env python3
"""Fails where docs/reference/PROBES.md, the programs' static probes and the scripts for bpftrace differ.

    check-probes.py SOURCE KVLEASED LIBKVLEASE

Each probe of the tables is in its file, with as many arguments, and each of the file in the tables; a
probe is one nop without a semaphore; scripts use probes and arguments that are there, and the words
that they have for causes are as many as enum drop_cause has.
"""
import collections
import pathlib
import platform
import re
import sys

from usdt import documented, probes

NOP = {"x86_64": b"\x90", "aarch64": b"\x1f\x20\x03\xd5"}.get(platform.machine())

MOST = 6  # arguments that bpftrace reads on x86_64

source = pathlib.Path(sys.argv[1])
files = dict(zip(("kvleased", "kvlease"), sys.argv[2:]))
tokens = {"kvleased": "kvleased", "kvlease": "libkvlease"}  # the scripts' names of the files
problems = []
document = source / "docs/reference/PROBES.md"


def noted(provider, path):
    """{name: [Probe]} of one file."""
    found, data = collections.defaultdict(list), pathlib.Path(path).read_bytes()
    for p in probes(path):
        found[p.name].append(p)
        if p.provider != provider:
            problems.append(f"{path}: {p.provider}:{p.name} isn't of provider {provider}")
        if p.semaphore != 0:
            problems.append(f"{path}: {p.name} has a semaphore")
        if NOP and data[p.offset:p.offset + len(NOP)] != NOP:
            problems.append(f"{path}: {p.name} at {p.address:#x} is no nop")
    return found


def check_file(provider, path, table):
    found = noted(provider, path)
    for name in sorted(found.keys() - {n for p, n in table if p == provider}):
        problems.append(f"docs/reference/PROBES.md: {provider}:{name} isn't in the table")
    for (_, name), args in [(key, args) for key, args in table.items() if key[0] == provider]:
        counts = {len(p.args) for p in found.get(name, [])}
        if not counts:
            problems.append(f"docs/reference/PROBES.md: {path} has no {provider}:{name}")
        elif len(args) > MOST:
            problems.append(f"docs/reference/PROBES.md: {provider}:{name} has more than {MOST} arguments")
        elif counts != {len(args)}:
            problems.append(f"docs/reference/PROBES.md: {provider}:{name} has {len(args)} arguments, the program {counts}")


def check_script(path, table, causes):
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    used = re.findall(r"^usdt:@(\w+)@:(\w+):(\w+)\n(.*?)^\}", text, re.M | re.S)
    if not used or len(used) != text.count("usdt:"):
        problems.append(f"{path}: its probes can't be read")
    for token, provider, name, body in used:
        args = table.get((provider, name))
        most = max([int(n) for n in re.findall(r"\barg(\d+)\b", body)], default=-1)
        if args is None or token != tokens[provider]:
            problems.append(f"{path}: there is no {token}:{provider}:{name}")
        elif most >= len(args):
            problems.append(f"{path}: {name} has no arg{most}")
    words = re.findall(r"@cause\[(\d+)\] = ", text)
    if words and words != causes:
        problems.append(f"{path}: causes {words} rather than {causes}")
    return len(used)


def check_causes():
    header = (source / "daemon/core/state/drop-reason.h").read_text()
    names = re.findall(r"\bCAUSE_\w+", re.search(r"enum drop_cause \{(.*?)\};", header, re.S)[1])
    causes = [str(i) for i in range(len(names))]
    rows = re.findall(r"^\| (\d+) \|", document.read_text().split("| cause | meaning |")[1].split("\n\n")[0], re.M)
    if rows != causes:
        problems.append(f"docs/reference/PROBES.md: causes {rows}, enum drop_cause has {len(names)}")
    return causes


table, causes = documented(document), check_causes()
if len(table) < 20:
    problems.append("docs/reference/PROBES.md: its tables can't be read")
for provider, path in files.items():
    check_file(provider, path, table)
n = sum(check_script(p, table, causes) for p in sorted((source / "packaging/bpftrace").glob("*.bt.in")))
if n == 0:
    problems.append("packaging/bpftrace: no script uses a probe")
print("\n".join(problems) if problems else f"{len(table)} probes, {n} used by scripts: ok")
sys.exit(1 if problems else 0)
