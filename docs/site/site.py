#!/usr/bin/env python3
"""Makes the documents a site that a browser opens without a server and without network.

    site.py SOURCE OUT PAGE.scd...    writes OUT/html, from OUT/source

The pages are README.md, docs/, and a reference that is made here: manual pages (of man.py), the protocol's messages
(proto), metrics (figures.def, client/exporter) and the Python API (_kvlease.pyi, with the texts of client/python/src).
Needs sphinx-build with myst-parser: Debian's python3-sphinx and python3-myst-parser.
"""
import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/tools"))
import protocol

# Title, pages in order. A folder's pages that aren't named follow in order of their names.
PARTS = {
    "Start": ["start/host", "start/vllm", "start/transformers", "start/llama", "start/lmcache", "start/sglang",
              "start/kubernetes", "start/c", "start/python"],
    "Operate": ["operate/size", "operate/configure", "operate/tenants", "operate/tiers", "operate/other-hosts", "operate/watch", "operate/routing",
                "operate/upgrade", "operate/troubleshoot", "operate/faq", "operate/glossary"],
    "Integrate": ["integrate/vllm", "integrate/vllm-run", "integrate/transformers", "integrate/llama", "integrate/lmcache", "integrate/sglang",
                  "integrate/engine", "integrate/identity", "integrate/troubleshoot"],
    "Reference": ["reference/kvleased.conf.5", "reference/kvleased.8", "reference/kvleasectl.1", "reference/metrics",
                  "reference/kvlease-exporter.8", "reference/kvlease-events.8", "reference/kvlease-exchange.8", "reference/libkvlease.3", "reference/python", "reference/PROTOCOL",
                  "reference/messages"],
    "Measure": ["measure/PERFORMANCE"],
    "Security": ["security/overview", "security/THREATS", "security/SECURITY"],
    "Develop": ["develop/CONTRIBUTING", "develop/ARCHITECTURE"],
}
# Manual pages below another one.
CHILDREN = {"reference/kvleasectl.1": "reference/kvleasectl-", "reference/libkvlease.3": "reference/kvlease_"}
MOVED = {"README.md": "index.md", "CONTRIBUTING.md": "develop/CONTRIBUTING.md", "SECURITY.md": "security/SECURITY.md",
         "CHANGELOG.md": "develop/CHANGELOG.md"}
NEEDED = {"sphinx": "python3-sphinx", "myst_parser": "python3-myst-parser"}


def missing():
    """The Debian packages that aren't there for the interpreter of sphinx-build."""
    program = shutil.which("sphinx-build")
    if not program:
        return [*NEEDED.values()]
    python = pathlib.Path(program).read_text(errors="replace").split("\n")[0].removeprefix("#!").split()
    return [package for module, package in NEEDED.items()
            if subprocess.run([*python, "-c", f"import {module}"], stderr=subprocess.DEVNULL, check=False).returncode]


# ---- pages of the source -------------------------------------------------------------------------


def place(path):
    """The page of the site that a document of the source becomes, or None."""
    if path in MOVED:
        return MOVED[path]
    return path.removeprefix("docs/") if re.match(r"docs/(?!man/|site/).*\.(md|svg|png)$", path) else None


def document(source, path):
    page = place(path)
    here, there = pathlib.PurePath(path).parent, pathlib.PurePath(page).parent

    def link(match):
        text, target, anchor = match.groups()
        if "://" in target or not target:
            return match.group(0)
        full = os.path.normpath(here / target)
        if place(full) and (source / full).is_file():
            return f"[{text}]({os.path.relpath(place(full), there)}{anchor or ''})"
        return f"{text} (`{full}`)" if text.strip("`") != full else f"`{full}`"

    return re.sub(r"\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)", link, (source / path).read_text())


# ---- manual pages --------------------------------------------------------------------------------


def running(text, pages):
    """scdoc's *bold* and _emphasis_, and names of pages, as Markdown."""
    def name(match):
        page = f"{match.group(1)}.{match.group(2)}"
        return f"[{match.group(1)}({match.group(2)})]({page}.md)" if page in pages else match.group(0)

    text = re.sub(r"\*([\w.\\-]+)\*\((\d)\)", lambda m: name(re.match(r"(.*)\((\d)\)", m[0].replace("*", "").replace("\\", ""))), text)
    kept = re.split(r"(\\.|\[[^\]]*\]\([^)]*\))", text)
    return "".join(part if i % 2 else part.replace("*", "**").replace("<", "&lt;") for i, part in enumerate(kept)) \
        .replace("\\-", "-") if "*" in text or "<" in text else text


def term(line):
    """An option, a field: a title, so that the search and links find it."""
    plain = re.sub(r"\\(.)", r"\1", line)
    return "`" + re.sub(r"[*`]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", "", plain).strip() + "`"


def manual(text, pages):
    head, name, _, body = re.match(r"(\S+\(\d\))\n\n# NAME\n\n(.*?)\n\n(?=# (\w+))(.*)", text, re.S).groups()
    out, is_code = [f"# {head}\n", running(name.split(" - ", 1)[-1].capitalize(), pages) + "\n"], False
    for line in body.splitlines():
        if line.startswith("```"):
            is_code = not is_code
            out.append("```c" if is_code and "libkvlease" in text else line)
        elif is_code:
            out.append(line)
        elif line.startswith("#"):
            depth, title = line.split(" ", 1)
            out.append(f"#{depth} {title.capitalize() if title.isupper() else title}")
        elif line.startswith(("[[ ", "|  ", ":[ ", ":  ")):
            cell = running(line[3:].strip(), pages).replace("|", "\\|")
            out.append(cell if line[0] in "[|" else out.pop() + " | " + cell)
            if line[0] in "[|":
                out[-1] = "| " + out[-1]
        elif line.startswith("*") and f"\n{line}\n\t" in text:
            out.append(f"#### {term(line)}")
        else:
            out.append(running(line.strip("\t"), pages))
    return "\n".join(tables(out)) + "\n"


def tables(lines):
    """Rows of | cells: the first is the head."""
    for before, line in zip(["", *lines], lines):
        yield line + " |" if line.startswith("| ") else line
        if line.startswith("| ") and not before.startswith("| "):
            yield "|" + " --- |" * (line.count(" | ") + 1)


# ---- made of the source --------------------------------------------------------------------------


def metrics(source):
    literals, rows = r'((?:"(?:[^"\\]|\\.)*"\s*)+)', []
    for path in [source / "proto/figures.def", *sorted((source / "client/exporter").glob("*.c"))]:
        text = path.read_text()
        found = re.findall(r'\b(\w+)\(\s*(?:\w+,\s*)?"(\w+)",\s*(TEXT_\w+,\s*)?' + literals, text)
        found += [("", name, kind, words) for name, kind, words in
                  re.findall(r'\.family = "(\w+)",\s*(?:\.type = (\w+),\s*)?\.help = ' + literals, text)]
        for macro, name, kind, words in found:
            words = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', words)).replace('\\"', '"')
            ending = "_total" if "COUNTER" in macro + kind else "_info" if "INFO" in macro + kind else ""
            if words.endswith("."):
                rows.append((("process_" if path.stem == "process" else "kvlease_") + name + ending, words))
    if len(rows) < 190:
        sys.exit(f"site.py: only {len(rows)} metrics can be read in client/exporter")
    return ("# Metrics\n\n`kvlease-exporter` serves these families. [watch](../operate/watch.md#metrics) says how to read them, and "
            "[troubleshoot](../operate/troubleshoot.md#alerts) has the alerts.\n\n"
            + "\n".join(f"## `{name}`\n\n{words}\n" for name, words in sorted(set(rows))))


def python_texts(source):
    """{(file's words, name): text} of the docstrings of the extension."""
    texts = {}
    for path in sorted((source / "client/python/src").glob("*.c")):
        for literals in re.findall(r'(?:"(?:[^"\\]|\\.)*"\s*)+', path.read_text()):
            whole = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace("\\n", "\n").replace('\\"', '"')
            if "\n--\n\n" in whole:
                head, text = whole.split("\n--\n\n", 1)
                texts.setdefault((path.stem.split("-")[0], head.split("(")[0]), text)
    return texts


def signature(node):
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"


def block(shown):
    return "```python\n" + textwrap.fill(shown, 88, subsequent_indent=8 * " ", break_long_words=False, break_on_hyphens=False) + "\n```\n"


def python_class(node, texts):
    out = [f"## {node.name}\n", (ast.get_docstring(node) or "") + "\n"]
    stems = {"Connection": "connection", "Pages": "pages", "View": "view", "Session": "session", "Window": "window"}
    for member in node.body:
        if isinstance(member, ast.AnnAssign):
            out.append(f"- `{ast.unparse(member)}`")
        elif isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)) and not member.name.startswith("_"):
            names = {getattr(d, "id", "") for d in member.decorator_list}
            shown = member.name if "property" in names else signature(member)
            text = ast.get_docstring(member) or next((texts[key] for key in texts if key[1] == member.name and key[0] in (
                stems.get(node.name, ""), "namespace" if node.name == "Namespace" else "", "start" if node.name == "Namespace" else "")), "")
            out.append(f"\n{block(shown)}\n{text}\n")
    return "\n".join(out) + "\n"


def python_api(source):
    texts, out = python_texts(source), ["# Python API\n\n`import kvlease`. [First steps](../start/python.md).\n"]
    package = source / "client/python/kvlease"
    out.append((ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or "") + "\n")
    for name in ("_kvlease.pyi", "_types.py", "aio.py"):
        nodes = ast.parse((package / name).read_text()).body
        out += [f"## {n.name}()\n\n{block(signature(n))}\n{next((t for k, t in texts.items() if k[1] == n.name), '')}\n"
                for n in nodes if isinstance(n, ast.FunctionDef) and not n.name.startswith("_") and name == "_kvlease.pyi"]
        classes = [n for n in nodes if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]
        errors = [n for n in classes if {"Error", "Exception"} & {getattr(b, "id", "") for b in n.bases}]
        if errors:
            out.append("## Exceptions\n\n" + "\n".join(f"- `{n.name}({', '.join(map(ast.unparse, n.bases))})`" for n in errors) + "\n")
        out += [python_class(n, texts) for n in classes if n not in errors]
    return "\n".join(out)


# ---- main ----------------------------------------------------------------------------------------


def children(folder, prefix):
    return sorted(str(p.relative_to(folder))[:-3] for p in folder.glob(prefix + "*.md"))


def toctree(pages, caption=""):
    return "\n```{toctree}\n:hidden:\n" + (f":caption: {caption}\n" if caption else "") + "\n" + "\n".join(f"/{p}" for p in pages) + "\n```\n"


def navigation(folder):
    """The index's lists of pages; every page is in one."""
    pages = {str(p.relative_to(folder))[:-3] for p in folder.rglob("*.md")} - {"index"}
    pages -= {p for parent, prefix in CHILDREN.items() for p in children(folder, prefix)}
    out = []
    for title, first in PARTS.items():
        own = [p for p in first if p in pages] + sorted(p for p in pages if p.startswith(title.lower() + "/") and p not in first)
        pages -= set(own)
        out.append(toctree(own, title))
    if pages:
        sys.exit(f"site.py: in no part of the site: {', '.join(sorted(pages))}")
    return "\n".join(out)


def mend_search(html):
    """Before Sphinx 6 a word in a page's title and text made the search forget the words before. Debian's tools know
    searchtools.js, so the mended one has another name."""
    script, page = (html / "_static/searchtools.js").read_text(), html / "search.html"
    mended = script.replace("""if (fileMap.has(file) && fileMap.get(file).indexOf(word) === -1)
          fileMap.get(file).push(word);
        else fileMap.set(file, [word]);""", """if (!fileMap.has(file)) fileMap.set(file, [word]);
        else if (fileMap.get(file).indexOf(word) === -1) fileMap.get(file).push(word);""")
    if mended != script:
        (html / "_static/search-words.js").write_text(mended)
        page.write_text(page.read_text().replace("_static/searchtools.js", "_static/search-words.js"))


def main(words):
    if len(words) < 3:
        sys.exit(__doc__.strip())
    if packages := missing():
        sys.exit(f"docs-site needs {', '.join(packages)}: apt install --no-install-recommends {' '.join(packages)}")
    source, out, scd = pathlib.Path(words[0]), pathlib.Path(words[1]), [pathlib.Path(w) for w in words[2:]]
    folder = out / "source"
    shutil.rmtree(out, ignore_errors=True)
    for path in [*source.glob("*.md"), *(source / "docs").rglob("*.*")]:
        name = str(path.relative_to(source))
        if not place(name):
            continue
        to = folder / place(name)
        to.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            to.write_text(document(source, name))
        else:
            shutil.copy(path, to)
    reference = folder / "reference"
    made = {p.stem: p.read_text() for p in scd if "protocol" not in p.stem and "probes" not in p.stem}
    for name, text in made.items():
        (reference / f"{name}.md").write_text(manual(text, made))
    (reference / "metrics.md").write_text(metrics(source))
    (reference / "python.md").write_text(python_api(source))
    (reference / "messages.md").write_text(protocol.page(source))
    for parent, prefix in CHILDREN.items():
        page = folder / f"{parent}.md"
        page.write_text(page.read_text() + toctree(children(folder, prefix)))
    index = folder / "index.md"
    index.write_text(index.read_text() + "\n" + navigation(folder))
    here = pathlib.Path(__file__).resolve().parent
    done = subprocess.run(["sphinx-build", "-q", "-W", "--keep-going", "-j2", "-c", here, "-d", out / "cache", folder, out / "html"], check=False)
    if done.returncode == 0:
        mend_search(out / "html")
        print(f"{out / 'html'}/index.html")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
