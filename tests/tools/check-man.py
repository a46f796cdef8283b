#!/usr/bin/env python3
"""Fails where an option, a verb or a function has no text in the manual pages, a page is malformed, or a help is too wide
or breaks the rules of check-prose.py.

    check-man.py DIR KVLEASED KVLEASECTL KVLEASE-EXPORTER KVLEASE-EVENTS KVLEASE-EXCHANGE LIBKVLEASE.MAP

Skipped (exit status 77) where mandoc or man isn't installed, once everything else was right.
"""
import concurrent.futures
import json
import pathlib
import re
import runpy
import shutil
import subprocess
import sys

PROSE = runpy.run_path(str(pathlib.Path(__file__).with_name("check-prose.py")))

pages, kvleased, kvleasectl, exporter, events, exchange, symbols = sys.argv[1:]
pages = {p.name: p for p in sorted(pathlib.Path(pages).iterdir()) if re.search(r"\.[1-8]$", p.name)}
problems = []


def read(name):
    if name not in pages:
        problems.append(f"there is no page {name}")
        return ""
    text = pages[name].read_text()
    for wrote, meant in (("\\-", "-"), ("\\&", ""), ("\\_", "_"), ("\\(aq", "'")):
        text = text.replace(wrote, meant)
    return text


def printed(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def need_term(page, term, what):
    """A line that starts with the term in bold, and an indented text."""
    if not re.search(rf"^(?:\\fB-\w\\fR, )?\\fB{re.escape(term)}\\fR.*\n\.RS 4\n[^.\n]", read(page), re.M):
        problems.append(f"{page}: {what} {term} has no text")


def check_kvleased():
    options = json.loads(printed(kvleased, "--help-config=json"))
    # A key of another section has a text of its own.
    sections = re.split(r"^\.SH SECTION \[(\w+).*$", read("kvleased.conf.5"), flags=re.M)
    texts = dict(zip(sections[1::2], sections[2::2]))
    for o in options:
        if not re.search(rf"^\\fB{o['key']}\\fR = ?.*\n\.RS 4\n[^.\n]", texts.get(o["section"], ""), re.M):
            problems.append(f"kvleased.conf.5: {o['key']} of {o['section']} has no text")
    words = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", printed(kvleased, "--help"), re.M))
    if len(options) < 40 or len(words) < 10:
        problems.append("kvleased's options can't be read")
    for word in sorted(words):
        need_term("kvleased.8", word, "option")


def check_arguments(program, page):
    words = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", printed(program, "--help"), re.M))
    if len(words) < 3:
        problems.append(f"the options of {page} can't be read")
    for word in sorted(words):
        need_term(page, word, "option")


def check_kvleasectl():
    table = json.loads(printed(kvleasectl, "--json", "--help"))
    listed = re.findall(r"^  ([a-z]+(?: [a-z]+)?)(?: [A-Z\[on|].*?)?  +", printed(kvleasectl, "--help")
                        .split("Verbs:\n")[1].split("\n\n")[0], re.M)
    if [v["name"] for v in table["verbs"]] != listed:
        problems.append("kvleasectl --help and kvleasectl --json --help name other verbs")
    for option in table["options"]:
        if option["global"]:
            need_term("kvleasectl.1", "--" + option["name"], "option")
    for verb in table["verbs"]:
        page = f"kvleasectl-{verb['name'].split()[0]}.1"
        need_term("kvleasectl.1", verb["name"], "verb")
        if f"\\fB{verb['name']}\\fR" not in read(page).split(".SH DESCRIPTION")[0]:
            problems.append(f"{page}: {verb['name']} isn't in the synopsis")
        for option in verb["options"]:
            need_term(page, "--" + option, "option")
        for field in verb["fields"] or []:
            need_term(page, field["name"], "field")
    if not any(len(verb["fields"] or []) > 90 for verb in table["verbs"] if verb["name"] == "status"):
        problems.append("kvleasectl-status.1: the fields of status can't be read")


def check_library():
    exported = re.findall(r"^\s+(kvl_\w+);", pathlib.Path(symbols).read_text(), re.M)
    texts = {}
    for page in pages:
        if page.endswith(".3"):
            head, *rest = re.split(r"^\.SS (.*)$", read(page), flags=re.M)
            for title, text in zip(rest[::2], rest[1::2]):
                for name in re.findall(r"(kvl_\w+)\(\)", title):
                    texts[name] = text.split("\n.SH")[0]
                    if f"{name}(" not in head.split(".SH DESCRIPTION")[0]:
                        problems.append(f"{page}: {name} isn't in the synopsis")
    if len(exported) < 40:
        problems.append(f"{symbols}: its functions can't be read")
    for name in exported:
        if not re.search(r"^[^.\n]", texts.get(name, ""), re.M):
            problems.append(f"{name} has no text in section 3")
    for name in texts.keys() - set(exported):
        problems.append(f"{name} isn't exported")


def check_sections():
    """Pages of programs and files have sections for what to type and for the variables that count."""
    for page in pages:
        wanted = {"8": ["ENVIRONMENT", "EXAMPLES"], "1": ["ENVIRONMENT", "EXAMPLES"], "5": ["EXAMPLES"],
                  "3": ["ERRORS", "EXAMPLES"], "7": ["EXAMPLES"]}
        for section in wanted.get(page[-1], []):
            text = read(page).split(f"\n.SH {section}\n")
            if len(text) != 2 or len(text[1].split("\n.SH ")[0].strip()) < 40:
                problems.append(f"{page}: no section {section}, or nothing in it")


def check_help():
    """Helps fit terminals of 80 columns, and keep the rules of documents."""
    verbs = json.loads(printed(kvleasectl, "--json", "--help"))["verbs"]
    for verb in verbs:
        units = [verb["summary"], *re.split(r"\n(?=  )|\n\n", verb["text"] or ""), *verb["option_helps"].values()]
        for unit in [*units, *(example["what"] for example in verb["examples"])]:
            for sentence in re.split(r"(?<=[.!?])\s+", " ".join(unit.split())):
                problems.extend(f"{verb['name']} --help: {rule}: {sentence}" for rule in PROSE["faults"](sentence))
    for words in ([kvleased], [exporter], [events], [exchange], [kvleasectl], *([kvleasectl, *v["name"].split()] for v in verbs)):
        for line in printed(*words, "--help").splitlines():
            if len(line) > 80 and not line.startswith("  kvleasectl "):  # an example is a line to copy
                problems.append(f"{' '.join(words[1:]) or words[0]} --help: {len(line)} columns: {line}")


def lint(path):
    """mandoc's warnings, except of empty paragraphs, which scdoc leaves everywhere; then man's."""
    found = subprocess.run(["mandoc", "-Tlint", "-W", "warning", path], stdout=subprocess.PIPE, text=True)
    lines = [line for line in found.stdout.splitlines() if "skipping paragraph macro" not in line]
    shown = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return lines + shown.stderr.splitlines()


check_kvleased()
check_arguments(exporter, "kvlease-exporter.8")
check_arguments(events, "kvlease-events.8")
check_arguments(exchange, "kvlease-exchange.8")
check_kvleasectl()
check_library()
check_sections()
check_help()
for page in ("kvlease-protocol.7", "kvlease-probes.7"):
    if page not in pages:
        problems.append(f"there is no page {page}")
can_lint = shutil.which("mandoc") and shutil.which("man")
if can_lint:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for lines in pool.map(lint, pages.values()):
            problems += lines
for problem in problems:
    print(problem)
if problems:
    sys.exit(1)
print(f"{len(pages)} manual pages: ok" + ("" if can_lint else "; mandoc or man isn't installed"))
sys.exit(0 if can_lint else 77)
