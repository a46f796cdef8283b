#!/usr/bin/env python3
"""Writes manual pages in scdoc's language from what the source has already.

    man.py fill TEMPLATE NAME=COMMAND...    a written page; its lines @NAME@ become a part, below
    man.py noun NOUN KVLEASECTL             a page for the verbs of a noun
    man.py library KVLEASE.H PAGE MANUAL.C  a page of kvlease.h's functions, with the example of the page in MANUAL.C
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
    "followers of the cache": ("kvlease_follow", "follow what is cached"),
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
    return ["# FIELDS\n\nFields of *--json*. Sizes are in bytes, and null is a missing value. As text most fields "
            "are together in a line.\n"] + [
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
    out.append("# OPTIONS AND EXIT STATUS\n\n*kvleasectl*(1) has options and exit status of all verbs.\n")
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


# What to do about an errno, in the order of the pages. A condition's meaning is in kvlease.h.
ERRNOS = {
    "-EINVAL": "An argument is wrong. *kvl_last_error*() names it. Repair the program.",
    "-ENOTCONN": "The connection is over, or kvleased stayed away too long. Call *kvl_disconnect*(), and connect again.",
    "-ESTALE": "kvleased restarted without its state. Call *kvl_disconnect*(), connect again, and compute the pages again.",
    "-ECONNRESET": "kvleased closed the connection. Connect again. Its log has the reason.",
    "-ECONNREFUSED": "No process listens at the socket. Start kvleased, or name another socket.",
    "-EPROTO": "The answer breaks the protocol. The connection is over. Report it with the log of kvleased.",
    "-ETIMEDOUT": "No answer came in time, and kvleased may still execute the request. *kvleasectl status* shows its state.",
    "-EAGAIN": "Too much is under way, and nothing was done. Try again after another call has ended.",
    "-EBUSY": "Another operation is in the way, and nothing was done. Try again later.",
    "-ECANCELED": "The namespace or the connection was closed before the call ended.",
    "-EACCES": "The rules of the tenant, or a metadata-only connection, forbid the call.",
    "-ENOENT": "The named thing doesn't exist. *kvl_last_error*() names it.",
    "-EEXIST": "This connection has the namespace open already. Use that one.",
    "-EOPNOTSUPP": "This device, transport or daemon can't do it. Leave the flag out, or upgrade kvleased.",
    "-ENAMETOOLONG": "The path of the socket is too long. Choose a shorter one.",
    "-EMFILE": "A limit on descriptors, clients or sessions is reached. *kvl_last_error*() names it.",
    "-ENOSPC": "There is no room in the table. Continue without the call, or raise the limit.",
    "-EOVERFLOW": "A page has too many pins. Release some.",
    "-EIO": "The device, or libcrypto, failed. *kvl_last_error*() and the log have the reason.",
    "-ENOMEM": "This process, or the device, has no memory left.",
    "-ECHILD": "The connection belongs to the parent process. Connect again after fork().",
}
CONDITIONS = {
    "KVL_MISS": "Compute the pages.",
    "KVL_DUPLICATE": "Use the page that is returned, and free your own.",
    "KVL_QUOTA": "Release pages, or have the administrator raise the limit.",
    "KVL_FULL": "Release pages, or try again later.",
    "KVL_NO_PARENT": "Look the sequence up again, and publish from its last cached page on.",
    "KVL_STALE": "Close the namespace, open it again, and compute the pages again.",
    "KVL_DRAINING": "Finish the work, and disconnect.",
    "KVL_LAYOUT": "Choose the existing layout, or another name.",
    "KVL_VERSION": "Install libkvlease and kvleased of releases that have a protocol version in common.",
    "KVL_TIMEOUT": "Try again, or do without.",
    "KVL_PENDING": "Wait for the other client (*kvl_wait*()).",
    "KVL_RESERVATION": "Release pages, or have the administrator raise the reservation.",
}


def errors(header, body):
    """The codes that a page names, each with its meaning and a remedy."""
    meanings = dict(re.findall(r"^\s+(KVL_\w+) = \d+,? +/\* (.*?) \*/$", header, re.M))
    unknown = set(re.findall(r"-E[A-Z]{3,}\b", body)) - ERRNOS.keys()
    if unknown or not CONDITIONS.keys() <= meanings.keys():
        sys.exit(f"man.py: no remedy for {unknown}, or kvlease.h has no meaning of a condition")
    rows = [(code, f"{meanings[code][0].upper()}{meanings[code][1:]}. {remedy}") for code, remedy in CONDITIONS.items()]
    rows = [row for row in [*rows, *ERRNOS.items()] if re.search(rf"(?<!\w){row[0]}\b", body)]
    text = "\n".join(f"*{escape(code)}*\n\t{named(escape_plain(what))}\n" for code, what in rows)
    return "# ERRORS\n\n*kvl_last_error*() has a sentence for each.\n\n" + text if rows else ""


def escape_plain(text):
    """As escape(), for text with *bold* words."""
    return re.sub(r"(?<=\w)_(?=\w)", r"\\_", text)


def example_of(page, program):
    """The functions after the comment with the page's name, up to the next such comment."""
    found = re.search(rf"^/\* {page} \*/\n(.*?)(?=^/\* (?:lib)?kvlease|^/\* ----)", open(program, encoding="utf-8").read(), re.M | re.S)
    if not found:
        sys.exit(f"{program} has no example for {page}")
    return ("# EXAMPLES\n\nA part of the program manual.c among the examples of the package. There, _layout_ and _keys_ are "
            "of 4 pages of 16 tokens, and need() ends the program if a call failed.\n\n" + literal(found[1].replace("static ", "")))


def library(header, page, program):
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
        "# DESCRIPTION\n", *[t for t in text if t], errors(open(header, encoding="utf-8").read(), body),
        example_of(name, program), see_also(name)])


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
