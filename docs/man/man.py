#!/usr/bin/env python3
"""Writes manual pages in scdoc's language from what the source has already.

    man.py fill TEMPLATE NAME=COMMAND...    a written page; its lines @NAME@ become a part, below
    man.py noun NOUN KVLEASECTL             a page for the verbs of a noun
    man.py library KVLEASE.H PAGE           a page of kvlease.h's functions
    man.py functions KVLEASE.H              lines "PAGE FUNCTION..."
    man.py document SOURCE.MD PAGE SECTION TITLE    a page of a document
    man.py roff SCDOC                       the page in roff, of its text on the standard input, by scdoc

Parts: options (of kvleased's configuration), arguments (of kvleased), verbs, flags, exit and
environment (of kvleasectl); COMMAND is the program that has them. What can't be read, or has no text, ends it with
status 1.
"""
import json
import re
import subprocess
import sys

# Sections of kvlease.h: page and title. What comes before the first is libkvlease(3).
PAGES = {
    "connection": ("kvlease_connect", "connections to kvleased"),
    "events and use from an event loop": ("kvlease_events", "events and event loops"),
    "namespaces and memory": ("kvlease_namespaces", "namespaces and the memory of their pages"),
    "keys": ("kvlease_keys", "keys of pages"),
    "pages": ("kvlease_pages", "look up, lease, publish and release pages"),
    "single flight": ("kvlease_single_flight", "wait for what others are computing"),
    "sessions": ("kvlease_sessions", "chains of pages that outlive a worker"),
    "page tables": ("kvlease_page_tables", "block tables for an engine"),
    "why it hit or missed": ("kvlease_explain", "why keys hit or miss"),
    "the same without blocking": ("kvlease_start", "calls that don't block"),
    "GPU streams": ("kvlease_streams", "pages and the work on GPU streams"),
    "texts larger than the device": ("kvlease_windows", "attend over a text larger than the device"),
}
LIBRARY = ("libkvlease", "lease, share and find KV-cache pages owned by kvleased")


def escape(text):
    """Of running text; a first character that scdoc would take for markup, too."""
    text = re.sub(r"([\\_*])", r"\\\1", " ".join(text.split()))
    return "\\" + text if text[:1] in tuple("#-.[|]:+`<") else text


def literal(text):
    return "```\n" + text.strip("\n") + "\n```\n"


def printed(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


# ---- kvleased ------------------------------------------------------------------------------------


def options(kvleased):
    heads = {"daemon": "[daemon]", "device": "[device NAME]", "remote": "[remote NAME]", "tenant": "[tenant NAME]"}
    out, section = [], None
    for o in json.loads(printed(kvleased, "--help-config=json")):
        if o["section"] != section:
            section = o["section"]
            out.append(f"# SECTION {heads[section]}\n")
        if not o["help"]:
            sys.exit(f"{o['key']} of {section} has no text")
        value = f" = _{escape(o['default'])}_" if o["default"] else " ="
        restart = "" if o["reloadable"] else " Needs a restart."
        out.append(f"*{o['key']}*{value}\n\t{escape(o['help'])}\n\n"
                   f"\t{escape(o['type'].capitalize())}: {escape(o['allowed'])}.{restart}\n")
    return "\n".join(out)


def arguments(program):
    """The lines of --help that name an option, with those that go on at its text's column."""
    rows = []
    for line in printed(program, "--help").splitlines():
        start = re.match(r"  (-\w, |    )(--\S+(?: [A-Z=:]+)?) {2,}(\S.*)", line)
        more = re.match(r" {29}(\S.*)", line)
        if start:
            rows.append([(start.group(1).strip() + " " + start.group(2)).strip(), start.group(3)])
        elif more and rows:
            rows[-1][1] += " " + more.group(1)
    if not rows:
        sys.exit(f"{program} --help names no options")
    out = []
    for names, text in rows:
        names = re.sub(r"(-+[A-Za-z][a-z-]*)", r"*\1*", names)
        names = re.sub(r"(?<=[ =])([A-Z]+(:[A-Z]+)?)", r"_\1_", names)
        out.append(f"{names}\n\t{escape(text[0].upper() + text[1:])}.\n")
    return "\n".join(out)


# ---- kvleasectl ----------------------------------------------------------------------------------


def table(kvleasectl):
    return json.loads(printed(kvleasectl, "--json", "--help"))


def noun_of(verb):
    return verb["name"].split()[0]


def synopsis(verb):
    args = " ".join(a if a == "|" else f"_{escape(a)}_" for a in verb["args"].split())
    return f"*{verb['name']}* {args}".strip()


def flag(option):
    value = f" _{escape(option['value'])}_" if option["value"] else ""
    text = option["help"]
    return f"*--{option['name']}*{value}\n\t{escape(text[0].upper() + text[1:])}.\n"


def variable(row):
    text = row["what"]
    return f"*{escape(row['name'])}*\n\t{escape(text[0].upper() + text[1:])}.\n"


def example(row):
    text = row["what"]
    return escape(text[0].upper() + text[1:]) + ":\n\n" + literal(row["command"])


def environment(kvleasectl):
    return "\n".join(variable(x) for x in table(kvleasectl)["variables"])


def verbs(kvleasectl):
    return "\n".join(f"{synopsis(v)}\n\t{escape(v['summary'][0].upper() + v['summary'][1:])}. See "
                     f"*kvleasectl-{noun_of(v)}*(1).\n" for v in table(kvleasectl)["verbs"])


def flags(kvleasectl):
    return "\n".join(flag(o) for o in table(kvleasectl)["options"] if o["global"])


def exit_codes(kvleasectl):
    return "\n".join(f"*{e['code']}*\n\t{escape(e['meaning'][0].upper() + e['meaning'][1:])}.\n"
                     for e in table(kvleasectl)["exit_codes"])


def help_text(text):
    """Paragraphs; lines that are indented, and examples, stand as they are."""
    out = []
    for paragraph in text.strip("\n").split("\n\n"):
        for indented, lines in re.findall(r"((?:^ .*\n?)+)|((?:^\S.*\n?)+)", paragraph, re.M):
            out.append(literal(indented) if indented else escape(lines) + "\n")
    return "\n".join(out)


def fields(verb):
    """What --json has, under the names that it has there."""
    if not verb["fields"]:
        return []
    for f in verb["fields"]:
        if not f["what"]:
            sys.exit(f"{f['name']} of {verb['name']} has no text")
    return ["# FIELDS\n\nOf *--json*, where sizes are bytes; null is what isn't there. As text most of them "
            "stand together in a line.\n"] + [
        f"*{escape(f['name'])}*\n\t{escape(f['what'][0].upper() + f['what'][1:])}.\n" for f in verb["fields"]]


def noun(name, kvleasectl):
    everything = table(kvleasectl)
    own = [v for v in everything["verbs"] if noun_of(v) == name]
    if not own:
        sys.exit(f"kvleasectl has no verb {name}")
    title = own[0]["summary"] if len(own) == 1 else f"{name}: " + ", ".join(
        v["name"].split()[1] for v in own)
    out = [f"kvleasectl-{name}(1)\n\n# NAME\n\nkvleasectl-{name} - {escape(title)}\n\n# SYNOPSIS\n"]
    out += [f"*kvleasectl* [_OPTION_...] {synopsis(v)}\n" for v in own]
    out.append("# DESCRIPTION\n")
    for v in own:
        out.append(f"## {v['name']}\n" if len(own) > 1 else "")
        out.append(escape(v["summary"][0].upper() + v["summary"][1:]) + ".\n")
        out.append(help_text(v["text"]) if v["text"] else "")
        out += [flag({**o, "help": v["option_helps"][o["name"]]}) for o in everything["options"]
                if o["name"] in v["options"]]
        out += fields(v)
    out.append("# OPTIONS AND EXIT STATUS\n\nThose of every verb are in *kvleasectl*(1).\n")
    counted = {name for v in own for name in v["variables"]}
    out.append("# ENVIRONMENT\n\n" + "\n".join(
        variable(x) for x in everything["variables"] if x["name"] in counted))
    out.append("# EXAMPLES\n\n" + "\n".join(example(x) for v in own for x in v["examples"]))
    out.append("# SEE ALSO\n\n*kvleasectl*(1), *kvleased*(8), *kvleased.conf*(5)")
    return "\n".join(part for part in out if part)


# ---- libkvlease ----------------------------------------------------------------------------------


def chunks(text):
    """(comment, code), either may be "": a comment from the first column, and what follows it up to a
    blank line outside braces."""
    comment, code, depth, in_comment = [], [], 0, False
    for line in text.splitlines() + [""]:
        if in_comment or (not code and line.startswith("/*")):
            comment = comment + [line] if in_comment else [line]
            in_comment = "*/" not in line
        elif line.strip() or depth:
            code.append(line)
            depth += line.count("{") - line.count("}")
        elif code or comment:
            yield "\n".join(comment), "\n".join(code)
            comment, code = [], []


def prose(comment):
    """A C comment as paragraphs; lines that begin with "- " are a list, and code is as it is."""
    lines = [re.sub(r"^ \* ?|^/\* ?", "", line) for line in comment.replace("*/", "").splitlines()]
    out = []
    for paragraph in "\n".join(lines).strip().split("\n\n"):
        if re.match(r"\s{2,}\S", paragraph):
            out.append(literal(paragraph))
        elif paragraph.startswith("- "):
            out.append("- " + named(escape(paragraph[2:])) + "\n")
        else:
            out.append(named(escape(paragraph)) + "\n")
    return "\n".join(out)


def named(text):
    """Marks up what a comment has already escaped: `code`, *emphasis*, functions."""
    text = re.sub(r"`([^`]*)`", r"*\1*", re.sub(r"\\\*([a-z ]+)\\\*", r"_\1_", text))
    return re.sub(r"\b(kvl(?:\\?_[a-z]+)+)\(\)", r"*\1*()", text)


def functions_of(code):
    plain = re.sub(r"/\*.*?\*/", "", code, flags=re.S)
    if re.match(r"(typedef|struct \w+ \{|enum|#)", plain):
        return []
    return re.findall(r"\b(kvl_\w+)\(", plain)


def sections(header):
    text = open(header, encoding="utf-8").read()
    first, *rest = re.split(r"^/\* ---- (.*?) -+ \*/$", text, flags=re.M)
    rest[-1] = rest[-1].split("#if defined(__GNUC__)")[0]
    overview, rest_of_it = first.split("*/", 1)
    constants = rest_of_it[rest_of_it.index("#define KVL_KEY_BYTES"):]
    yield LIBRARY, overview + "*/\n\n" + constants
    for title, body in zip(rest[::2], rest[1::2]):
        if title not in PAGES:
            sys.exit(f"kvlease.h: the section '{title}' has no page in man.py")
        yield PAGES[title], body


def library(header, page):
    (name, title), body = next(s for s in sections(header) if s[0][0] == page)
    names, prototypes, text = [], [], []
    for comment, code in chunks(body):
        own = functions_of(code)
        if own and not comment:
            sys.exit(f"kvlease.h: {', '.join(own)}: no comment says what it is")
        if own:
            prototypes.append(code)
            text.append("## " + ", ".join(f"{escape(f)}()" for f in own) + "\n")
        names += own
        text.append(prose(comment) if comment else "")
        text.append(literal(code) if code and not own else "")
    listed = ", ".join(([name] if name == LIBRARY[0] else []) + names) or name
    return "\n".join([
        f"{name}(3)\n\n# NAME\n\n{escape(listed)} - {escape(title)}\n\n# SYNOPSIS\n",
        literal("#include <kvlease.h>\n\n" + "\n".join(prototypes)), "Link with _-lkvlease_.\n",
        "# DESCRIPTION\n", *[t for t in text if t], see_also(name)])


def see_also(name):
    others = [page for page, _ in [LIBRARY, *PAGES.values()] if page != name]
    return "# SEE ALSO\n\n" + ", ".join(f"*{page}*(3)" for page in others) + ", *kvleased*(8)"


def functions(header):
    lines = []
    for (page, _), body in sections(header):
        own = [f for _, code in chunks(body) for f in functions_of(code)]
        lines.append(" ".join([page] + own))
    return "\n".join(lines)


# ---- documents -----------------------------------------------------------------------------------


def markdown(text):
    """Of running text: `code`, *emphasis*, [words](link)."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split()))
    out = ""
    for i, part in enumerate(re.split(r"`([^`]*)`", text)):
        plain = re.sub(r"([\\_*])", r"\\\1", part)
        out += f"*{plain}*" if i % 2 else re.sub(r"\\\*([^*\\]+)\\\*", r"_\1_", plain)
    return "\\" + out if out[:1] in tuple("#-.[|]:+<") else out


def document_rows(lines):
    """A table: the line of dashes goes."""
    out = []
    for n, line in enumerate(line for line in lines if not re.match(r"^[|-]+$", line)):
        first, *cells = [markdown(cell) for cell in line.strip("| ").split(" | ")]
        if n == 0:
            out.append(f"[[ *{first}*")
            out += [f":[ *{cell}*" if cell else ":[ " for cell in cells]
        else:
            out.append(f"|  {first}")
            out += [f":  {cell}" for cell in cells]
    return "\n".join(out) + "\n"


def document_block(kind, lines):
    if kind == "code":
        return literal("\n".join(lines))
    if kind == "table":
        return document_rows(lines)
    if kind == "list":
        items = re.split(r"\n(?=- |\d+\. )", "\n".join(lines))
        return "\n".join(("- " if i.startswith("-") else ". ")
                         + markdown(re.sub(r"^(- |\d+\. )", "", i)) for i in items) + "\n"
    if kind == "head":
        depth, title = lines[0].split(" ", 1)
        title = title.upper() if len(depth) == 2 else markdown(title)
        return "#" * (len(depth) - 1) + f" {title}\n"
    return markdown(" ".join(lines)) + "\n"


def kind_of(line):
    for kind, start in (("head", r"#"), ("table", r"\|"), ("list", r"- |\d+\. ")):
        if re.match(start, line):
            return kind
    return "text"


def document(path, page, section, title):
    out = [f"{page}({section})\n\n# NAME\n\n{page} - {escape(title)}\n\n# DESCRIPTION\n"]
    kind, lines = None, []
    for line in open(path, encoding="utf-8").read().splitlines()[1:] + [""]:
        fence = line.startswith("```")
        here = None if fence or not line.strip() else kind_of(line)
        if kind == "code" and not fence or kind == "list" and here == "text":
            here = kind
        if lines and (here != kind or kind == "head"):
            out.append(document_block(kind, lines))
            lines = []
        if fence:
            here = None if kind == "code" else "code"
        elif here:
            lines.append(line)
        kind = here
    out.append("# SEE ALSO\n\n*kvleased*(8), *kvleasectl*(1), *libkvlease*(3)")
    return "\n".join(out)


# ---- main ----------------------------------------------------------------------------------------

PARTS = {"options": options, "arguments": arguments, "verbs": verbs, "flags": flags,
         "exit": exit_codes, "environment": environment}


def fill(template, *sources):
    """A template's lines @NAME@, of the programs given."""
    programs = dict(source.split("=", 1) for source in sources)

    def part(match):
        return PARTS[match.group(1)](programs[match.group(1)]).rstrip("\n")

    return re.sub(r"^@(\w+)@$", part, open(template, encoding="utf-8").read(), flags=re.M)


def roff(scdoc):
    """Of a page with tables the first line says that tbl is to read it, which scdoc leaves out; and their columns are
    too narrow for lines that are to end at the same place."""
    page = subprocess.run([scdoc], stdin=sys.stdin, stdout=subprocess.PIPE, text=True, check=True).stdout
    return "'\\\" t\n" + page.replace("T{\n", "T{\n.na\n") if "\n.TS\n" in page else page


def main(words):
    commands = {"fill": fill, "noun": noun, "library": library, "functions": functions,
                "document": document, "roff": roff}
    if len(words) < 2 or words[0] not in commands:
        sys.exit(__doc__.strip())
    print(commands[words[0]](*words[1:]).rstrip("\n"))


if __name__ == "__main__":
    main(sys.argv[1:])
