#!/usr/bin/env python3
"""Fails where a document, a help text or a comment breaks a rule of its language (CONTRIBUTING.md, "Style").

  check-prose.py SOURCE

Comments of C files only may not begin with a word that hides their subject. Text for users has to keep all of RULES: README.md and
docs, manual pages, the options of kvleased.conf, kvlease.h, kvlease.proto, the figures of lists and metrics, and the docstrings of
the Python extension. Messages of the programs name who acts.
"""
from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Iterator

import rooms

PRODUCT = ("base", "client/ctl", "client/exporter", "client/lib", "client/llama", "client/python", "daemon", "gpu", "policy", "proto")
TREES = ("base", "client", "daemon", "gpu", "lab", "policy", "proto", "tests")
COMMENT = re.compile(r"/\*[\s*]*(Of|It|Who|What|As|Likewise|The same|Nobody|Those)\b(.*?)\*/", re.DOTALL)
LITERALS = re.compile(r'(?:"(?:[^"\\]|\\.)*"\s*)+')

MOST_WORDS = 25
QUESTION = re.compile(r"\?\W*$")
RULES = {
    "begins with a word that hides its subject": re.compile(r"^\W*(?:What|Who|Whoever|Whatever|Whose|Of(?! course\b)|To which)\b"),
    "has a clause with 'what' in place of a noun": re.compile(r"\b[Ww]hat(?:ever)?\b"),
    "names no actor": re.compile(r"\b(?:some|no|any)body\b", re.IGNORECASE),
    "tells a story": re.compile(r"\b(?:since then|the first design|nobody has explained)\b"),
    "has a word that isn't the field's": re.compile(
        r"strict double|double of the driver|lies below the device|by the clock|beside other work|held up\b|asked back|gives? way"
        r"|gave way|who is sure|turns? of (?:the|its) loop|\bill servers?\b"),
    "lets a thing of memory go or come": re.compile(r"\b(?:page|set|namespace|session)s? (?:goes|went|gone|is gone|are gone|came)\b"),
}
CLAUSE = re.compile(r"(?:Why|What|Who|Whether|How|When|Where|Which)\b(?!.*\?$)")
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")


def opening(top: pathlib.Path, tree: str) -> list[str]:
    """The comments of a tree that begin so, with their places."""
    paths = sorted((top / tree).rglob("*.[ch]"))
    if not paths:
        sys.exit(f"{top / tree} has no C file: nothing would be read")
    lines = []
    for path in paths:
        text = path.read_text()
        for match in COMMENT.finditer(text):
            words = re.sub(r"[\s*]+", " ", match.group(1) + match.group(2))
            lines.append(f"{path.relative_to(top)}:{text.count(chr(10), 0, match.start()) + 1}: {words[:100]}")
    return lines


def count(sentence: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def faults(sentence: str) -> list[str]:
    """The rules that a sentence breaks. Quoted words and code aren't the writer's."""
    plain = re.sub(r"\"[^\"]*\"|`[^`]*`|\bCODE\b", "CODE", sentence)
    if QUESTION.search(plain):
        return []
    found = [rule for rule, pattern in RULES.items() if pattern.search(plain)]
    return [*found, f"has {count(plain)} words"] if count(plain) > MOST_WORDS else found


def sentences(text: str) -> list[str]:
    text = " ".join(text.split())
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "")
    text = re.sub(r"`[^`]*`", "CODE", text)
    return [s for s in re.split(r"(?<=[.!?])[)*_]?\s+(?=[A-Z\"(\[*_]|CODE|kvl|v?LLM|torch|int\d|libkv)", text) if s]


def markdown(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, items and cells with the number of their first line."""
    text = re.sub(r"^```.*?^```|^    \S.*$", lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S)
    start, lines = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        line = line.strip()
        begins = re.match(r"(?:- |\d+\. )", line)
        if lines and (not line or begins or line.startswith(("|", "#"))):
            yield start, " ".join(lines)
            lines = []
        if line.startswith("|"):
            yield from ((number, cell.strip()) for cell in line.strip("| ").split(" | ") if not re.fullmatch(r"[-|: ]*", cell))
        elif line and not line.startswith("#"):
            start = start if lines else number
            lines.append(line[begins.end():] if begins else line)


def document(path: pathlib.Path) -> Iterator[str]:
    text = path.read_text()
    for number, unit in markdown(text):
        for sentence in sentences(unit):
            yield from (f"{number}: {rule}: {sentence[:160]}" for rule in faults(sentence))
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if title := re.match(r"#+ (.*)", line):
            if CLAUSE.match(title[1]):
                yield f"{number}: the title is a clause: {title[1]}"
        elif DATE.search(line) and path.name != "CHANGELOG.md" and not (line.startswith("*") and before.startswith(("|", "```", "*"))):
            yield f"{number}: a date stands in a line *...* under a table: {line[:120]}"
        before = line or before


def c_comments(text: str) -> Iterator[str]:
    """Paragraphs of comments; a comment beside code is one."""
    for comment in re.findall(r"/\*(.*?)\*/", text, re.S):
        yield from re.split(r"\n\s*\*?\s*(?:\n|(?=- ))", comment)


def texts(top: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Each text for users that isn't a document, with its file."""
    def plain(comment: str) -> str:
        return re.sub(r"(?m)^\s*(?:\*|//|#)\s?", "", comment)

    for text in c_comments((top / "client/lib/kvlease.h").read_text()):
        yield "client/lib/kvlease.h", plain(text)
    proto = (top / "proto/kvlease.proto").read_text()
    for block in re.findall(r"(?:^[ ]*//.*\n)+|//.*\n(?:[ ]{20,}//.*\n)*", proto, re.M):
        yield from (("proto/kvlease.proto", plain(part)) for part in re.split(r"\n\s*//\s*(?:\n|(?=- |  \d))", block))
    for block in (top / "packaging/kvleased.conf").read_text().split("\n\n"):
        yield "packaging/kvleased.conf", "\n".join(line[2:] for line in block.splitlines() if line.startswith("# "))
    for path in (top / "client/python/src").glob("*.c"):
        for literals in LITERALS.findall(path.read_text()):
            whole = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace("\\n", "\n")
            if "\n--\n\n" in whole:
                yield from ((str(path.relative_to(top)), part) for part in whole.split("\n--\n\n", 1)[1].split("\n\n"))
    for path in (top / "docs/man").glob("*.scd"):
        for block in re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S).split("\n\n"):
            yield str(path.relative_to(top)), "" if block.startswith(("#", "@")) else re.sub(r"[*_\\]", "", re.sub(r"(?m)^(?=- )", ". ", block))
    for file in ("daemon/server/config/options.c", "proto/figures.def"):
        yield from ((file, joined(literals)) for literals in LITERALS.findall((top / file).read_text()))


def joined(literals: str) -> str:
    """The text of C's strings that follow one another."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace('\\"', '"')


def messages(top: pathlib.Path) -> list[str]:
    """Strings of the product, other than metrics' label "(nobody)", without an actor."""
    files = [path for tree in PRODUCT for pattern in ("*.c", "*.h", "*.def") for path in sorted((top / tree).rglob(pattern))]
    found = [(path, joined(literals)) for path in files for literals in LITERALS.findall(path.read_text())]
    if len(found) < 5000:
        sys.exit(f"only {len(found)} strings of the product can be read")
    return [f"{path.relative_to(top)}: names no actor: {text[:100]}" for path, text in found
            if RULES["names no actor"].search(text.replace("(nobody)", ""))]


def users(top: pathlib.Path) -> list[str]:
    pages = [top / "README.md", top / "CONTRIBUTING.md", top / "SECURITY.md", *sorted((top / "docs").rglob("*.md"))]
    lines = [f"{page.relative_to(top)}:{line}" for page in pages for line in document(page)]
    read = 0
    for file, text in texts(top):
        read += 1
        lines += [f"{file}: {rule}: {sentence}" for part in re.split(r"(?<=[.!?;])\s+", " ".join(text.split()))
                  for sentence in sentences(part) for rule in faults(sentence)]
    if len(pages) < 30 or read < 800:
        sys.exit(f"only {len(pages)} documents and {read} texts can be read")
    return lines


if __name__ == "__main__":
    SOURCE = rooms.source(sys.argv[1:])
    sys.exit(rooms.report("prose", [line for tree in TREES for line in opening(SOURCE, tree)] + messages(SOURCE) + users(SOURCE)))
