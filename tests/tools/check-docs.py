#!/usr/bin/env python3
"""Fails where documents say something else than the source does.

The examples of docs/start must be client/examples/hello.c and client/python/examples/hello.py to the letter, and README.md's
installation that of docs/start/host.md; the comments of proto/kvlease.proto must have every message of proto/msg.h with its number
and properties, and every status of proto/status.h; links between documents must lead to a file, and to a title in it; figures in several places must agree; each question of questions.txt must have its answer; messages with an id must have their text in the journal's catalog; each promise of THREATS.md must name a test, and each test named there must be one that meson runs; scripts print their whole usage.
"""
import os
import pathlib
import re
import sys

import protocol

top = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
problems = []
MOST_FOUND = 6  # pages that a reader looks at after a search; not tuned


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


def slug(title):
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def titles(page):
    """Anchors of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    return {slug(title) for title in re.findall(r"^#+ (.*)$", text, re.M)}


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


# Figures that stand in several places: a pattern for each, with its factor. All are the same but for rounding.
FIGURES = {
    "bytes of a cached page": [
        ("tests/bench/footprint.c", r"#define MAX_BYTES (\d+)", 1), ("docs/measure/PERFORMANCE.md", r"bytes \(bound (\d+)\)", 1),
        ("docs/operate/size.md", r"needs (\d+) bytes of host memory", 1), ("docs/operate/size.md", r"pages × (\d+) bytes", 1),
        ("packaging/helm/kvlease/values.yaml", r"(\d+) bytes a page", 1), ("packaging/kubernetes/kvleased.yaml", r"(\d+) bytes a page", 1)],
    "stored descriptors": [
        ("packaging/systemd/kvleased.service.in", r"FileDescriptorStoreMax=(\d+)", 1), ("docs/operate/size.md", r"The unit stores ([\d,]+)", 1),
        ("docs/operate/size.md", r"and ([\d,]+) descriptors each", 1), ("docs/operate/configure.md", r"more than ([\d,]+) extents", 1)],
    "events": [("daemon/core/state/event-log.h", r"EVENT_LOG_EVENTS +(\d+)", 1), ("docs/operate/watch.md", r"the last ([\d,]+) events", 1),
               ("proto/kvlease.proto", r"([\d,]+) events and forgets", 1)],
    "milliseconds of a restart with 1 M pages on the H200": [
        ("README.md", r"accepts requests ([\d.]+) s after", 1000), ("docs/measure/GPU.md", r"pages it took (\d+) ms", 1)],
    "greatest cost of a step without hits": [
        ("README.md", r"costs 1.0 to ([\d.]+) %", 1), ("docs/operate/faq.md", r"1.0 to ([\d.]+) % longer", 1),
        ("docs/measure/PERFORMANCE.md", r"copies: prefill \|.*\| 1\.0(\d\d) \|", 0.1)],
    "seconds of a cold prompt of vLLM": [
        ("README.md", r"3,000 tokens \| ([\d.]+) s", 1), ("docs/start/vllm.md", r"\| kvlease, cold \| ([\d.]+)", 1),
        ("docs/measure/PERFORMANCE.md", r"kvlease: cold[^|]*\| ([\d.]+);", 1)],
    "seconds of a found prompt of transformers": [
        ("README.md", r"H200, 8,212 .*\| ([\d.]+) s \| `sh", 1), ("docs/start/transformers.md", r"same prompt took ([\d.]+) s", 1),
        ("docs/measure/GPU.md", r"tokens took ([\d.]+) s \(one run", 1)],
    "seconds of a found prompt of the decoder": [
        ("README.md", r"2,048 tokens \| [\d.]+ s \| ([\d.]+) s", 1), ("docs/measure/GPU.md", r"it takes ([\d.]+) ms", 0.001)],
}


def check_figures():
    for name, places in FIGURES.items():
        values = {}
        for file, pattern, factor in places:
            found = re.findall(pattern, read(file))
            if len(found) != 1:
                problems.append(f"{file}: {len(found)} places have {name} ({pattern})")
            values |= {f"{file} ({pattern})": float(value.replace(",", "")) * factor for value in found}
        if values and max(values.values()) > 1.1 * min(values.values()):
            problems.append(f"{name}: " + ", ".join(f"{value:g} in {file}" for file, value in values.items()))


def section(text, anchor):
    """The lines from a title to the next one of its depth."""
    depth, found, is_code = 0, [], False
    for line in text.splitlines():
        is_code ^= line.startswith("```")
        title = None if is_code else re.match(r"(#+) (.*)", line)
        if title and depth and len(title[1]) <= depth:
            break
        if title and slug(title[2]) == anchor:
            depth = len(title[1])
        if depth:
            found.append(line)
    return "\n".join(found)


def check_questions():
    """Each question is answered at a place that two clicks and a search find."""
    pages = {str(p.relative_to(top)): p.read_text() for p in [*top.glob("*.md"), *(top / "docs").rglob("*.md")]}

    def linked(page):
        links = re.findall(r"\]\(([^)#\s]+\.md)", pages[page])
        return {os.path.normpath(pathlib.PurePath(page).parent / link) for link in links} & set(pages)

    near = {"README.md"}
    for _ in range(2):
        near |= {to for page in near for to in linked(page)}
    readers = re.split(r"^\[(.*)\]$", read("tests/tools/questions.txt"), flags=re.M)[1:]
    for reader, lines in zip(readers[::2], readers[1::2]):
        rows = [line.split(" | ") for line in lines.splitlines() if line]
        if len(rows) < 12:
            problems.append(f"questions.txt: {len(rows)} questions of the {reader}")
        for question, place, words in rows:
            page, anchor = place.split("#")
            answer, words = section(pages.get(page, ""), anchor).lower(), words.lower().split()
            found = [name for name, text in pages.items() if all(word in text.lower() for word in words)]
            if page not in near:
                problems.append(f"'{question}': {page} is more than two clicks from README.md")
            elif missing := [word for word in words if word not in answer]:
                problems.append(f"'{question}': {place} is no title, or says nothing of {', '.join(missing)}")
            elif len(found) > MOST_FOUND:
                problems.append(f"'{question}': {len(found)} pages have all of: {' '.join(words)}")


check_examples()
check_messages()
check_status()
check_links()
check_figures()
check_questions()
check_threats()
check_catalog()
check_usage()
print("\n".join(problems) if problems else "documents: ok")
sys.exit(1 if problems else 0)
