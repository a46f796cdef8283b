#!/usr/bin/env python3
"""Fails where documents say something else than the source does.

The examples of docs/start must be client/examples/hello.c and client/python/examples/hello.py to the letter, and README.md's
installation that of docs/start/host.md; the comments of proto/kvlease.proto must have every message of proto/msg.h with its number
and properties, and every status of proto/status.h; links between documents must lead to a file, and to a title in it; messages with an id must have their text in the journal's catalog; each promise of THREATS.md must name a test, and each test named there must be one that meson runs; scripts print their whole usage.
"""
import pathlib
import re
import sys

import protocol

top = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
problems = []


def read(path):
    return (top / path).read_text()


def camel(snake):
    return "".join(part.capitalize() for part in snake.split("_"))


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", read(page), re.M | re.S)


def check_examples():
    for page, language, example in [("docs/start/c.md", "c", "client/examples/hello.c"),
                                    ("docs/start/python.md", "python", "client/python/examples/hello.py")]:
        if read(example) not in blocks(page, language):
            problems.append(f"{page}: the example is not {example}")
    install = blocks("docs/start/host.md", "sh")[0]
    if not any(block.startswith(install) for block in blocks("README.md", "sh")):
        problems.append("README.md: its installation isn't that of docs/start/host.md")


def check_messages():
    """The comments of the .proto have number and properties of each message."""
    page, source = "proto/kvlease.proto", read("proto/msg.h").replace("\\\n", " ")
    rows = re.findall(r"\bX\((\w+),\s*(\d+),\s*(\w+),\s*(\w+),\s*([\w\s|]+?),\s*(true|false),\s*(\w+)\)", source)
    events = re.findall(r"\bX\((\w+),\s*(\d+),\s*\w+_event\)", source)
    if len(rows) < 20 or len(events) < 3:
        problems.append("proto/msg.h: MSG_TABLE can't be read")
    documented = {m.kind: m for m in protocol.read(top) if m.kind}
    for name, number, _, reply, sockets, no_reply, fds in [*rows, *((n, i, "", "", "", "", "0") for n, i in events)]:
        message = documented.pop(name, protocol.Message("", "", []))
        have = {re.sub(r"^.*\bfds?$", "fds", p) for p in message.properties}
        want = {*([camel(reply)] if reply else []), *(["NO_REPLY"] if no_reply == "true" else []), *([] if fds == "0" else ["fds"]),
                *(["publisher"] if "PUBLISHES" in sockets else []), *(["monitor"] if "READS" in sockets and name != "HELLO" else [])}
        if message.number != int(number) or have != want:
            problems.append(f"{page}: no comment '{name} ({number}) [{', '.join(sorted(want))}]'")
        elif not message.text and name not in ("BYE", "DOORBELL"):
            problems.append(f"{page}: {name} has no text")
    problems.extend(f"{page}: there is no message {name}" for name in documented)


def check_status():
    rows = re.findall(r'X\((\w+), (\d+), (\S+), "', read("proto/status.h"))
    if len(rows) < 20:
        problems.append("proto/status.h: STATUS_TABLE can't be read")
    known = {status[:3] for status in protocol.statuses(top)}
    problems.extend(f"proto/kvlease.proto: no line '{wire} {name} {code.replace('KVL_STATUS_', 'KVL_')}: ...'" for name, wire, code in rows
                    if (wire, name, code.replace("KVL_STATUS_", "KVL_")) not in known)


def titles(page):
    """Anchors of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, re.M)}


def check_links():
    for page in [*sorted(top.glob("*.md")), *sorted((top / "docs").rglob("*.md"))]:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
            to = page.parent / target if target else page
            if "://" in target:
                continue
            if not to.exists():
                problems.append(f"{page.relative_to(top)}: leads nowhere: {target}")
            elif anchor and anchor not in titles(to):
                problems.append(f"{page.relative_to(top)}: {to.name} has no title for #{anchor}")


def check_test(page, room, name, function):
    """ROOM/NAME:FUNCTION is test_FUNCTION() of tests/ROOM/test_NAME.c; fuzz/NAME is tests/fuzz/fuzz_NAME.c."""
    test = f"{room}/{name}" + (f":{function}" if function else "")
    source = top / "tests" / room / f"{'fuzz' if room == 'fuzz' else 'test'}_{name}.c"
    if not source.exists():
        problems.append(f"{page}: {test}: there is no {source.relative_to(top)}")
        return
    if not re.search(rf"'(test_)?{name}(\.c)?'", read(f"tests/{room}/meson.build")):
        problems.append(f"{page}: {test}: meson doesn't run it")
    if room == "fuzz":
        return
    text = source.read_text()
    # Registered by a macro like TEST(); or defined, and in main()'s list.
    registered = function and re.search(rf"^[A-Z]\w*\(test_{function}\b", text, re.M)
    listed = function and re.search(rf"^static void test_{function}\(", text, re.M) and len(re.findall(rf"\btest_{function}\b", text)) > 1
    if not registered and not listed:
        problems.append(f"{page}: {test}: {source.name} has no such test")


def check_python_test(page, name, function):
    """python/NAME:FUNCTION is test_FUNCTION() of client/python/tests/test_NAME.py, or of NAME.py (for torch)."""
    files = [top / "client/python/tests" / f"{prefix}{name}.py" for prefix in ("test_", "")]
    if not any(f.exists() and re.search(rf"^def test_{function}\(", f.read_text(), re.M) for f in files):
        problems.append(f"{page}: python/{name}:{function}: client/python/tests has no such test")


def check_threats():
    """Each row of the tables names its tests in the last column: unit/NAME:FUNCTION+FUNCTION, fuzz/NAME."""
    page = "docs/security/THREATS.md"
    protected, others = read(page).split("## Protected")[1].split("## Not protected")
    tests = r"\b(unit|integration|fault|fuzz|python)/(\w+)(?::([\w+]+))?|\b(?:exposure|system|fuzz-corpus)-\w+"
    rows = re.findall(r"^\| (?!attack|-).*\|$", protected, re.M)
    if len(rows) < 10:
        problems.append(f"{page}: its rows can't be read")
    for row in rows:
        if not re.search(tests, row.split("|")[-2]):
            problems.append(f"{page}: no test is named for: {row.split('|')[1].strip()}")
    for cell in [row.split("|")[-2] for row in re.findall(r"^\|.*\|$", protected + others, re.M)]:
        for room, name, functions in re.findall(tests, cell):
            for function in functions.split("+"):
                if room == "python":
                    check_python_test(page, name, function)
                elif room:
                    check_test(page, room, name, function)


def check_catalog():
    """Each MESSAGE_ID has its text for journalctl -x, and each text its message."""
    table = dict(re.findall(r'X\((\w+), LEVEL_\w+, "([0-9a-f]{32})"\)', read("daemon/server/base/log.h")))
    catalog = "packaging/systemd/kvlease.catalog"
    entries = re.findall(r"^-- (\S+)\nSubject: \S.*\nDefined-By: kvlease\nDocumentation: man:\S+\n\n\S", read(catalog), re.M)
    if len(table) < 10:
        problems.append("daemon/server/base/log.h: LOG_MESSAGE_TABLE can't be read")
    for name, id in table.items():
        if entries.count(id) != 1:
            problems.append(f"{catalog}: not one whole text for {name}, {id}")
    for id in set(re.findall(r"^-- (\S+)", read(catalog), re.M)) - set(table.values()):
        problems.append(f"{catalog}: no message of daemon/server/base/log.h has {id}")


def check_usage():
    """A script's --help prints all of its first comment, and no command."""
    scripts = [*sorted((top / "packaging").glob("*.sh")), *sorted((top / "tests").rglob("*.sh"))]
    if len(scripts) < 5:
        problems.append("packaging and tests: their scripts can't be found")
    for script in scripts:
        lines = script.read_text().split("\n")
        comment = next(i for i, line in enumerate(lines) if not line.startswith("#"))
        for last in re.findall(r"sed -n '[^']* 2,(\d+)p' \"\$0\"", "\n".join(lines)):
            if int(last) != comment:
                problems.append(f"{script.relative_to(top)}: --help prints lines 2 to {last}, the comment ends at {comment}")


check_examples()
check_messages()
check_status()
check_links()
check_threats()
check_catalog()
check_usage()
print("\n".join(problems) if problems else "documents: ok")
sys.exit(1 if problems else 0)
