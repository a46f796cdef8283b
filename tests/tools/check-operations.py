#!/usr/bin/env python3
"""Fails where README.md, a page of FOLDERS or packaging/ shows a configuration that kvleased refuses, where
docs/operate/troubleshoot.md leaves an alert out or has one that isn't there, where packaging/kvleased.conf leaves an option out, and
where a page names a verb or option that kvleasectl hasn't, or is longer than its folder's limit.

    check-operations.py SOURCE KVLEASED KVLEASECTL
"""
import json
import pathlib
import re
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
options = re.findall(r"^    (\w+) = ", subprocess.run([kvleased, "--help-config"], check=True, capture_output=True, text=True).stdout,
                     re.MULTILINE)
if len(options) < 50:
    problems.append("the options of kvleased --help-config can't be read")
problems += [f"packaging/kvleased.conf: no option {o}" for o in options if not re.search(rf"^#?{o} =", commented, re.MULTILINE)]

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
spans = re.findall(r"`([^`\n]+)`", page) + re.findall(r"^kvleasectl .*$", page, re.MULTILINE)
shown = [span.removeprefix("kvleasectl ") for span in spans if span.startswith("kvleasectl ")]
if len(shown) < 10:
    problems.append("its kvleasectl commands can't be read")
for line in shown:
    words = line.split()
    verb = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in verbs), None)
    # "tenants" alone is a noun.
    if not verb and not any(v.startswith(words[0] + " ") for v in verbs):
        problems.append(f"kvleasectl has no verb: {line}")
    for option in re.findall(r"--([a-z-]+)", line):
        if verb and option not in verbs[verb]:
            problems.append(f"kvleasectl {verb} has no option --{option}")
print("\n".join(problems) if problems else f"{len(configurations)} configurations, {len(rows)} alerts: ok")
sys.exit(1 if problems else 0)
