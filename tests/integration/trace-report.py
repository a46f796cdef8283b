#!/usr/bin/env python3
"""The reports of kvleasectl trace on a trace of three tenants: trace-report.py KVLEASECTL KVLEASED

The HTML report is opened in headless chromium: every plot must be drawn, in the light and in the
dark, and nothing may be asked of the network. The configuration that is recommended must be one
that kvleased takes. What needs chromium is skipped (77) where there is none.
"""
import gzip
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

SKIPPED = 77
WIDTH, HEIGHT = 800, 5600
# What must be drawn in each plot, by series colour, and how many pixels of it at least: the dots
# of a line alone have about 100.
PLOTS = {
    "curves": {"s0": 250, "s1": 250, "s2": 250},
    "first-reuse": {"s0": 2000},
    "reuse": {"s0": 2000},
    "input": {"s0": 2000},
    "output": {"s0": 2000},
    "turns": {"s0": 2000},
    "gaps": {"s0": 2000},
    "waste": {"s0": 2000, "s1": 100},
    "page-hits": {"s0": 2000, "s1": 2000},
    "demand": {"s0": 500, "s1": 500, "s2": 50},
}


def fail(message):
    sys.exit(f"trace-report: {message}")


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120,
                          check=False, **options)
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


# ---- a trace -------------------------------------------------------------------------------------

def requests_of(tenant, number, turns, block_tokens):
    """Sessions whose turns come in longer and longer gaps; all of a tenant share their first block."""
    state = number
    lines, ids = [], 1
    for session in range(60):
        path, tokens, time = [0], block_tokens, session * 9000
        for turn in range(1 + session % turns):
            state = (state * 1103515245 + 12345) % 2**31
            tokens += 100 + state % 900
            while len(path) * block_tokens < tokens:
                path.append(ids)
                ids += 1
            lines.append({"timestamp": time, "input_length": tokens, "tenant": tenant,
                          "output_length": 20 + state % 300, "hash_ids": list(path)})
            path[-1] = ids  # it was partial: the next turn has another one there
            ids += 1
            time += 20000 * (turn + 1) + state % 9000
    return lines


def write_trace(path):
    lines = (requests_of("chat", 1, 6, 64) + requests_of("agents", 2, 12, 64)
             + requests_of("rag", 3, 2, 64))
    lines.sort(key=lambda line: line["timestamp"])
    with gzip.open(path, "wt") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)
    return lines


# ---- reports -------------------------------------------------------------------------------------

def check_json(ctl, trace, lines):
    report = json.loads(run(ctl, "trace", "analyze", trace, "--json"))
    if report["trace"]["requests"] != len(lines) or report["trace"]["tenants"] != 3:
        fail(f"the report is of another trace: {report['trace']}")
    tokens = sum(line["input_length"] for line in lines)
    if report["repeats"]["input_tokens"] != tokens:
        fail(f"input_tokens: {report['repeats']['input_tokens']} instead of {tokens}")
    for point in report["curves"]:
        if not 0 <= point["token_hit_ratio"] <= report["repeats"]["token_repeat_ratio"] + 1e-9:
            fail(f"more hits than repeats: {point}")


def check_progress(ctl, trace):
    """A bar on a terminal, nothing elsewhere."""
    command = [ctl, "trace", "replay", trace, "--policies", "all"]
    if subprocess.run(command, capture_output=True, timeout=120, check=True).stderr:
        fail("a progress bar in a pipe")
    ours, theirs = pty.openpty()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, timeout=120, check=True)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # the other end is closed: EIO
        pass
    os.close(ours)
    if b"reading [" not in shown or b"simulating [" not in shown or not shown.endswith(b"\x1b[K"):
        fail(f"no progress bar, or one that stays: {shown[-200:]}")


def check_recommendation(ctl, daemon, trace, folder):
    conf = folder / "recommended.conf"
    conf.write_text(run(ctl, "trace", "recommend", trace, "--token-bytes", "32KiB"))
    for name in ("chat", "agents", "rag"):
        if f"[tenant {name}]" not in conf.read_text():
            fail(f"no section for {name}:\n{conf.read_text()}")
    run(daemon, "--config", conf, "--check-config")


def check_self_contained(text):
    """Nothing in the file names another one, whatever a browser makes of it."""
    for word in ("http:", "https:", "//", "src=", "href", "url(", "@import", "<script", "<link", "<iframe"):
        if word in text:
            fail(f"the report has {word} in it: it must stand by itself")


# ---- other traces --------------------------------------------------------------------------------

# The second request of azure.csv has the blocks 10 to 1010: their numbers mustn't run together with those of the third.
OTHERS = {
    "azure.csv": ("an Azure LLM inference trace",
                  "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,160,44\n"
                  "2023-11-16 18:17:04.2500000,16016,109\n2023-11-16 18:17:05.1000000,40,7\n"),
    "burst.csv": ("BurstGPT",
                  "\ufeffTimestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                  "5,ChatGPT,472,18,490,Conversation log\n6.5,GPT-4,17,300,317,API log\n"),
    "sharegpt.json": ("ShareGPT", "\n [" + json.dumps(
        {"id": "a", "conversations": [{"from": who, "value": text} for who, text in (
            ("human", "é" * 500 + "\ud800"), ("gpt", "of course " * 40), ("human", "and more"), ("gpt", "yes"))]}) + "]"),
    "chat.jsonl": ("it has text instead of hash_ids", "\n" + json.dumps(
        {"id": "a", "conversation": [{"role": who, "content": text} for who, text in (
            ("user", "é" * 500), ("assistant", "of course " * 40), ("user", "and more"), ("assistant", "yes"))]}) + "\n"),
}


def check_others(ctl, folder):
    """Other traces are refused by name, and the documented script makes lines of them."""
    docs = pathlib.Path(__file__).parents[2] / "docs/measure/TRACES.md"
    script = folder / "to-trace.py"
    script.write_text(re.search(r"^```python\n(.*?)^```", docs.read_text(), re.M | re.S)[1])
    for name, (words, text) in OTHERS.items():
        other, trace = folder / name, folder / f"{name}.jsonl"
        other.write_text(text, encoding="utf-8")
        done = subprocess.run([ctl, "trace", "analyze", other], capture_output=True, text=True, timeout=120,
                              check=False)
        if done.returncode != 1 or words not in done.stderr or "docs/measure/TRACES.md" not in done.stderr:
            fail(f"{name} isn't refused by its name: {done}")
        trace.write_text(run(sys.executable, script, other))
        report = json.loads(run(ctl, "trace", "analyze", "--json", "--block-tokens", "16", trace))
        if report["trace"]["requests"] != (3 if name == "azure.csv" else 2):
            fail(f"{name}: not all its requests, or too many: {report['trace']}")
        ratio = report["repeats"]["token_repeat_ratio"]
        if (ratio > 0) != (name in ("sharegpt.json", "chat.jsonl")):
            fail(f"{name}: {ratio} of the tokens are found again")


# ---- the browser ---------------------------------------------------------------------------------

def chromium(browser, folder, *arguments):
    return run(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               "--disable-background-networking", "--disable-component-update", "--no-first-run",
               "--disable-extensions", "--disable-sync", "--disable-dev-shm-usage",
               "--force-device-scale-factor=1", "--host-resolver-rules=MAP * ~NOTFOUND",
               f"--user-data-dir={folder / 'profile'}", f"--window-size={WIDTH},{HEIGHT}",
               *arguments)


def boxes(browser, folder, html):
    """Where the plots are: a copy of the page tells, by a script that the report itself forbids."""
    asking = folder / "asking.html"
    text = re.sub(r"<meta http-equiv.*\n?.*>\n", "", html.read_text(), count=1)
    asking.write_text(text.replace("</body>", """<script>
document.title = JSON.stringify([...document.querySelectorAll("svg")].map(s => {
const r = s.getBoundingClientRect(); return [s.id, r.x, r.y, r.width, r.height]}))
</script></body>"""))
    dom = chromium(browser, folder, "--dump-dom", asking.as_uri())
    found = re.search(r"<title>(\[.*?)</title>", dom)
    if not found:
        fail("the page's plots can't be found")
    return {name: box for name, *box in json.loads(found.group(1))}


def unfilter(kind, line, above, step):
    """One line of a PNG (RFC 2083, 6), in place."""
    if kind == 1:
        for i in range(step, len(line)):
            line[i] = (line[i] + line[i - step]) & 255
    elif kind == 2:
        line[:] = bytes((a + b) & 255 for a, b in zip(line, above))
    elif kind == 3:
        for i in range(len(line)):
            left = line[i - step] if i >= step else 0
            line[i] = (line[i] + (left + above[i]) // 2) & 255
    elif kind == 4:
        for i in range(len(line)):
            a, b, c = ((line[i - step], above[i], above[i - step]) if i >= step
                       else (0, above[i], 0))
            near_a, near_b, near_c = abs(b - c), abs(a - c), abs(a + b - 2 * c)
            line[i] = (line[i] + (a if near_a <= near_b and near_a <= near_c
                                  else b if near_b <= near_c else c)) & 255


def read_png(path):
    """Lines of pixels, bytes a pixel."""
    data = path.read_bytes()
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height, depth, colours = struct.unpack(">IIBB", data[at + 8:at + 18])
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += size + 12
    if depth != 8 or colours not in (2, 6):
        fail(f"a PNG of depth {depth} and colour type {colours}: this test reads 8-bit RGB(A)")
    step = 3 if colours == 2 else 4
    raw, lines = zlib.decompress(packed), []
    above = bytes(width * step)
    for y in range(height):
        start = y * (width * step + 1)
        line = bytearray(raw[start + 1:start + 1 + width * step])
        unfilter(raw[start], line, above, step)
        lines.append(line)
        above = line
    return lines, step


def count(lines, step, box, colour):
    x, y, width, height = (int(n) for n in box)
    n = 0
    for line in lines[y:y + height]:
        row = line[x * step:(x + width) * step]
        n += sum(abs(r - colour[0]) + abs(g - colour[1]) + abs(b - colour[2]) < 60
                 for r, g, b in zip(row[0::step], row[1::step], row[2::step]))
    return n


def colours(html, dark):
    """Series and ground of the style sheet."""
    blocks = re.findall(r":root\{(.*?)\}", html)
    pairs = dict(re.findall(r"--(\w+):(#[0-9a-f]+)", blocks[1 if dark else 0]))
    wide = {name: value if len(value) == 7 else "#" + "".join(2 * c for c in value[1:])
            for name, value in pairs.items()}
    return {name: tuple(bytes.fromhex(value[1:])) for name, value in wide.items()}


def check_drawn(browser, folder, html, where, dark):
    shot = folder / ("dark.png" if dark else "light.png")
    arguments = ["--force-dark-mode"] if dark else []
    chromium(browser, folder, *arguments, f"--screenshot={shot}", html.as_uri())
    lines, step = read_png(shot)
    palette = colours(html.read_text(), dark)
    ground = tuple(lines[2][2 * step:2 * step + 3])
    if ground != palette["bg"]:
        fail(f"{'dark' if dark else 'light'}: the ground is {ground} and not {palette['bg']}")
    if set(where) != set(PLOTS):
        fail(f"plots: {sorted(where)}, and not {sorted(PLOTS)}")
    for series in ("s0", "s1", "s2"):
        if sum(abs(a - b) for a, b in zip(palette[series], ground)) < 200:
            fail(f"{series} can't be told from the ground: {palette[series]} on {ground}")
    for name, wanted in PLOTS.items():
        if where[name][1] + where[name][3] > HEIGHT:
            fail(f"{name} ends below the window of {HEIGHT} pixels")
        for series, least in wanted.items():
            n = count(lines, step, where[name], palette[series])
            if n < least:
                fail(f"{name}: {n} pixels of {series}, fewer than {least}: not drawn")


def asked_by_page(browser, folder, html):
    """What a page asked of the network, from chromium's log. What the browser asks for itself (and
    can't reach: no name is resolved) comes from no origin."""
    log = folder / "net.json"
    chromium(browser, folder, f"--log-net-log={log}", "--dump-dom", html.as_uri())
    starts = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    return {start["url"] for start in starts
            if isinstance(start, dict) and start.get("initiator", "not an origin") != "not an origin"}


def check_network(browser, folder, html):
    asked = asked_by_page(browser, folder, html)
    if asked:
        fail(f"the report asked for {sorted(asked)}")
    # And the log would tell.
    asking = folder / "asking.html"
    asking.write_text('<body><img src="http://nowhere.example/x.png"></body>')
    if asked_by_page(browser, folder, asking) != {"http://nowhere.example/x.png"}:
        fail("a page that asks for an image isn't seen to: this test is blind")


def main():
    ctl, daemon = sys.argv[1:]
    browser = shutil.which("chromium")
    with tempfile.TemporaryDirectory(prefix="kvl-trace-") as name:
        folder = pathlib.Path(name)
        trace, html = folder / "trace.jsonl.gz", folder / "report.html"
        lines = write_trace(trace)
        check_json(ctl, trace, lines)
        check_progress(ctl, trace)
        check_recommendation(ctl, daemon, trace, folder)
        check_others(ctl, folder)
        run(ctl, "trace", "analyze", trace, "--html", html)
        check_self_contained(html.read_text())
        if not browser:
            print("skipped: no chromium to open the report in")
            return SKIPPED
        where = boxes(browser, folder, html)
        check_drawn(browser, folder, html, where, False)
        check_drawn(browser, folder, html, where, True)
        check_network(browser, folder, html)
    return 0


if __name__ == "__main__":
    sys.exit(main())
