#!/usr/bin/env python3
"""Fails where README.md, a page of FOLDERS or packaging/ shows a configuration that kvleased refuses, where
docs/operate/troubleshoot.md leaves an alert out or has one that isn't there, where packaging/kvleased.conf has not the text of each option,
where a command of kvleasectl fails at a daemon of its own, where commands.txt names no test for another command of docs/start and
docs/operate, and where a page is longer than its folder's limit.

    check-operations.py SOURCE KVLEASED KVLEASECTL
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap

# The longest page of each folder, in bytes: a page is read at once. Not tuned.
FOLDERS = {".": 12 << 10, "docs/start": 12 << 10, "docs/operate": 12 << 10, "docs/integrate": 16 << 10}
source, kvleased, kvleasectl = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
pages = [source / "README.md", *(p for folder in FOLDERS if folder != "." for p in sorted((source / folder).glob("*.md")))]
page = "\n".join(p.read_text() for p in pages)
problems = [f"{p.name} has {p.stat().st_size} bytes" for p in pages if p.stat().st_size > FOLDERS[str(p.parent.relative_to(source))]]

configurations = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
if len(configurations) < 6:
    problems.append(f"{len(configurations)} configurations instead of six")
manifest = (source / "packaging/kubernetes/kvleased.yaml").read_text()
in_manifest = re.findall(r"^  kvleased\.conf: \|\n((?: {4}.*\n)+)", manifest, re.MULTILINE)
if len(in_manifest) != 1:
    problems.append("packaging/kubernetes/kvleased.yaml: no kvleased.conf")
for text in [*configurations, (source / "packaging/kvleased.conf").read_text(),
             (source / "packaging/compose/kvleased.conf").read_text(), *map(textwrap.dedent, in_manifest)]:
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([kvleased, "--check-config", "--config", file.name], capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            problems.append(done.stderr.strip())

commented = (source / "packaging/kvleased.conf").read_text()
options = json.loads(subprocess.run([kvleased, "--help-config=json"], check=True, capture_output=True, text=True).stdout)
if len(options) < 50:
    problems.append("the options of kvleased --help-config can't be read")
explained = {(" ".join(comment.replace("#", "").split()), line.strip()) for comment, line in re.findall(r"((?:^# .*\n)+)#(.*)$", commented, re.MULTILINE)}
problems += [f"packaging/kvleased.conf: no {o['key']} = {o['default']} below its text of kvleased --help-config" for o in options
             if (o["help"] + ("" if o["reloadable"] else " (restart)"), f"{o['key']} = {o['default']}".strip()) not in explained]

rules = (source / "packaging/prometheus/kvlease.rules.yml").read_text()
alerts = re.findall(r"^      - alert: (\w+)$", rules, re.MULTILINE)
rows = re.findall(r"^\| (Kvlease\w+) \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)
if len(alerts) < 10:
    problems.append("kvlease.rules.yml can't be read")
problems += [f"no row for the alert {name}" for name in alerts if rows.count(name) != 1]
problems += [f"there is no alert {name}" for name in rows if name not in alerts]

table = json.loads(subprocess.run([kvleasectl, "--json", "--help"], check=True, stdout=subprocess.PIPE,
                                  text=True).stdout)
verbs = {v["name"]: {*v["options"], *(o["name"] for o in table["options"] if o["global"])}
         for v in table["verbs"]}
spans = [span for p in pages for span in re.findall(r"`([^`\n]+)`|^(kvleasectl .*)$", p.read_text(), re.MULTILINE)]
shown = [" ".join(a or re.sub(r" +#.*", "", b) for a, b in [span]).removeprefix("kvleasectl ") for span in spans
         if "".join(span).startswith("kvleasectl ")]
if len(shown) < 60:
    problems.append("its kvleasectl commands can't be read")

# Words of the pages for things that a reader has. Exit statuses besides 0 of commands that concern such things: kvleased refused
# (there is no such namespace, no remote), not all is done, something would be lost, findings of doctor.
WORDS = {"NAME": "chat", "TENANT": "chat", "NAMESPACE": "llama", "KEY": "00" * 32, "POD": "pod", "/tmp/next/usr/sbin/kvleased": kvleased}
STATUSES = {"purge": [1], "explain": [1], "warm": [1], "recall": [1], "drain": [1, 4], "restart": [6], "doctor": [7, 8], "tenants remove": [1]}
UNENDING = re.compile(r"^(top\b|.*--follow|restart(?! --check)|.*(TRACE|>>|\.jsonl|VERB))")


NEEDY = {v["name"] for v in table["verbs"] if re.match(r"[A-Z]", v["args"])}


def run_all(folder):
    """Runs each command that ends, in order of the pages, at a daemon that has the tenants of their examples."""
    (folder / "kvleased.conf").write_text(f"[daemon]\nruntime_dir = {folder}/run\nstate_dir = {folder}/state\ndevices = host\nlog_target = text\n"
                                          "[device host]\nmemory = 1GiB\n[tenant chat]\n")
    daemon = subprocess.Popen([kvleased, "--config", folder / "kvleased.conf"], stderr=subprocess.PIPE, text=True)
    ran = 0
    try:
        if not any("ready in" in line for line in daemon.stderr):
            problems.append("kvleased doesn't start")
        said = subprocess.run([kvleasectl, "--runtime-dir", folder / "run", "status"], capture_output=True, text=True, check=True).stdout
        for line in re.findall(r"^\$ kvleasectl status\n(.*?)```", page, re.M | re.S)[0].splitlines():
            if line not in said.splitlines():
                problems.append(f"docs/operate/watch.md shows '{line}', kvleasectl status prints:\n{said}")
        for line in dict.fromkeys(shown):
            if not line or UNENDING.match(line) or line in NEEDY:
                continue
            words = [re.sub("^group=.*", f"group={os.getgid()}", WORDS.get(word, word)) for word in shlex.split(line)]
            done = subprocess.run([kvleasectl, "--runtime-dir", folder / "run", *words], capture_output=True, text=True, check=False, timeout=60)
            verb = next((v for v in STATUSES if line.startswith(v)), "")
            if done.returncode not in (0, *STATUSES.get(verb, [])):
                problems.append(f"kvleasectl {line}: exit status {done.returncode}: {done.stderr.strip()}")
            ran += 1
    finally:
        daemon.kill()
        daemon.wait()
    return ran


# Programs whose commands stand in sentences, too. Blocks have others.
INLINE = re.compile(r"(?:sh|apt|pip|python3?|systemctl|systemd-\w+|journalctl|adduser|meson|helm|kubectl|ssh|bpftrace|openssl|dpkg-deb|nvidia-smi|kvlease-bench"
                    r"|kvleased) \S")


def commands(text):
    """Each command of a page, but those of kvleasectl that run_all() runs."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S):
        yield from (re.sub(r" +#.*", "", line.removeprefix("$ ")) for line in block.splitlines() if language == "sh" or line.startswith("$ "))
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    yield from (span for span in re.findall(r"`([^`\n]+)`", text) if INLINE.match(span) or span.startswith("kvleasectl "))


def check_commands():
    """commands.txt has all commands that this test doesn't run, and each named test has the words by which it runs its own."""
    parts = re.split(r"^\[(.*)\]$", (source / "tests/tools/commands.txt").read_text(), flags=re.M)
    rows = [(place, *line.partition(" = ")[::2]) for place, lines in zip(parts[1::2], parts[2::2]) for line in lines.splitlines() if line]
    for place, command, words in rows:
        if not place.startswith("none: "):
            test = source / place
            if not test.exists() or (words or f'listed("{place}")') not in test.read_text():
                problems.append(f"commands.txt: {place} doesn't run: {command}")
    named = [command for _, command, _ in rows]
    found = {line for p in pages if p.parent.name in (source.name, "start", "operate") for line in commands(p.read_text())}
    found -= {line for line in found if line.startswith("kvleasectl ") and (line[11:] in NEEDY or not UNENDING.match(line[11:]))}
    problems.extend(f"commands.txt: no test is named for: {line}" for line in found if named.count(line) != 1)
    problems.extend(f"commands.txt: no page has: {line}" for line in named if line not in found)
    return len(found)


for line in shown:
    words = line.split()
    verb = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in verbs), None)
    # "tenants" alone is a noun.
    if not verb and not any(v.startswith(words[0] + " ") for v in verbs):
        problems.append(f"kvleasectl has no verb: {line}")
    for option in re.findall(r"--([a-z-]+)", line):
        if verb and option not in verbs[verb]:
            problems.append(f"kvleasectl {verb} has no option --{option}")
with tempfile.TemporaryDirectory(prefix="kvl-") as name:
    n_run = run_all(pathlib.Path(name))
n_named = check_commands()
print("\n".join(problems) if problems else f"{len(configurations)} configurations, {len(rows)} alerts, {n_run} commands, {n_named} in other tests: ok")
sys.exit(1 if problems else 0)
