"""The messages of proto/kvlease.proto as its comments describe them: for checks, and for the documents' site."""
import dataclasses
import pathlib
import re

MESSAGE = re.compile(r"((?:^//(?! ----)[^\n]*\n)*)^message (\w+) \{(\}|.*?^\})", re.M | re.S)
HEAD = re.compile(r"^// ([A-Z_]+) \((\d+)\)(?: \[(.*)\])?$", re.M)


@dataclasses.dataclass
class Message:
    name: str  # of the .proto: "LeaseRequest"
    text: str
    fields: list[tuple[str, str, str, str]]  # type, name, number, comment
    kind: str = ""  # "LEASE"; "" for a part or a reply of several
    number: int = 0
    properties: tuple[str, ...] = ()  # the reply first; none for an event


def words(comment: str) -> str:
    return " ".join(re.sub(r"^\s*// ?", "", line) for line in comment.splitlines()).strip()


def fields(body: str) -> list[tuple[str, str, str, str]]:
    """Each field with the comment lines before it, or on its line and those below."""
    found, before, in_enum = [], "", False
    for line in body.splitlines():
        field = re.match(r"\s+((?:repeated )?[\w.]+) (\w+) = (\d+)[^;]*;\s*(//.*)?$", line)
        in_enum = in_enum and "}" not in line or bool(re.match(r"\s+enum ", line))
        value = re.match(r"\s+([A-Z_]+) = (\d+);\s*(//.*)?$", line)
        if field or (in_enum and value):
            kind, name, number, comment = field.groups() if field else ("value", *value.groups())
            found.append([kind, name, number, before + (comment or "") + "\n"])
            before = ""
        elif re.match(r"\s{6,}//", line) and found and not before:
            found[-1][3] += line + "\n"
        elif re.match(r"\s+//", line):
            before += line + "\n"
    return [(kind, name, number, words(comment)) for kind, name, number, comment in found]


def read(source: pathlib.Path) -> list[Message]:
    """All messages in order, those with a number and the rest."""
    messages = []
    for comment, name, body in MESSAGE.findall((source / "proto/kvlease.proto").read_text()):
        heads = list(HEAD.finditer(comment))
        if not heads:
            messages.append(Message(name, words(comment), fields(body)))
        for i, head in enumerate(heads):  # several messages may have one request
            end = heads[i + 1].start() if i + 1 < len(heads) else len(comment)
            text = (comment[:head.start()] if i == 0 else "") + comment[head.end():end]
            messages.append(Message(name, words(text), fields(body) if i == 0 else [], head[1], int(head[2]),
                                    tuple(head[3].split(", ")) if head[3] else ()))
    return messages


def statuses(source: pathlib.Path) -> list[tuple[str, str, str, str]]:
    """Number, name, the library's result, meaning."""
    return re.findall(r"^//   (\d+) ([A-Z_]+) (\S+): (.*)$", (source / "proto/kvlease.proto").read_text(), re.M)


def page(source: pathlib.Path) -> str:
    """A page of all messages in Markdown."""
    text = (source / "proto/kvlease.proto").read_text()
    numbers = re.findall(r"^// - (.*(?:\n//   .*)*)", text, re.M)
    out = ["# Messages of the protocol\n\n[PROTOCOL](PROTOCOL.md) has frames, rules, keys and shared memory.\n\n## Status\n\n"
           "| number | name | libkvlease returns | meaning |\n|---|---|---|---|"]
    out += [f"| {' | '.join(row)} |" for row in statuses(source)]
    out += ["\n## Enumerations\n"] + ["- " + words(re.sub(r"\n//   ", " ", n)) for n in numbers] + [""]
    for message in read(source):
        title = f"{message.kind} ({message.number})" if message.kind else message.name
        text, _, errors = message.text.partition("Errors: ")
        out.append(f"## {title}\n")
        if message.kind:
            out.append(f"`{message.name}`. " + (f"Reply: `{'`, `'.join(message.properties)}`." if message.properties else "Event.") + "\n")
        out.append(text.strip().replace("<", "&lt;") + "\n")
        if message.fields:
            out.append("| field | type | number | meaning |\n|---|---|---|---|")
            out += [f"| `{name}` | {kind} | {number} | {meaning.replace('|', chr(92) + '|').replace('<', '&lt;')} |"
                    for kind, name, number, meaning in message.fields]
        out.append(f"\nErrors: {errors}\n" if errors else "")
    return "\n".join(out) + "\n"
