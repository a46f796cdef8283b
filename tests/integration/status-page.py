#!/usr/bin/python3
"""The status page of kvlease-exporter in headless chromium, beside a real daemon with 100 tenants.

    status-page.py KVLEASED EXPORTER WORKER

What is drawn, that it is live, that nothing is fetched from elsewhere and the policy isn't broken, that
it fits into 360 pixels and into 1920, in light and dark, by keyboard and for screen readers; and what it
says while the daemon is away, and the exporter. Skipped (77) where there is no chromium.
"""
import fcntl
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

kvleased, exporter, worker = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:4])
PATIENCE = 60  # s
N_TENANTS = 100
started = []


def start(*args, **kwargs):
    started.append(subprocess.Popen(*args, **kwargs))
    return started[-1]


def expect(condition, what):
    if not condition:
        sys.exit(f"status-page.py: {what}")


# ---- what is looked at ----------------------------------------------------------------------------


OPTIONS = ["daemon.devices=host", "device.host.memory=6MiB", "device.host.extent=2MiB",
           "device.host.host_memory=2MiB", *(f"tenant.t{i:02}.weight=100" for i in range(N_TENANTS)),
           "tenant.t01.class=pinned", "tenant.t01.reserve=2MiB"]


class Daemon:
    def __init__(self, folder, options=OPTIONS):
        self.folder, self.options = folder, options
        (folder / "none.conf").touch()
        self.start()

    def start(self):
        self.process = start(
            [kvleased, "-c", self.folder / "none.conf", "--runtime-dir", self.folder / "run", "--state-dir",
             self.folder / "state", *(w for o in self.options for w in ("-o", o))],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            if "ready in" in line:
                return
        sys.exit("status-page.py: kvleased didn't start")

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()


class Worker:
    def __init__(self, folder, tenant):
        self.process = start([worker], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.tell(f"connect {folder}/run/t/{tenant}/sock")
        self.tell("open llama 1")

    def tell(self, command):
        """A lease may be refused while memory goes from one tenant to another: it is asked for again."""
        end = time.monotonic() + PATIENCE
        while True:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            if answer.startswith("0"):
                return
            expect(command.startswith("cache") and time.monotonic() < end, f"the worker doesn't {command}: {answer}")

    def stop(self):
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()


class Exporter:
    def __init__(self, folder):
        self.folder, self.port = folder, 0
        self.start()

    def start(self):
        self.process = start([exporter, "--socket", self.folder / "run/admin.sock", "--listen", f"127.0.0.1:{self.port}"],
                             stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        expect("listening at http://127.0.0.1:" in line, f"the exporter says {line}")
        self.port = int(line.rsplit(":", 1)[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self):
        self.process.terminate()
        expect(self.process.wait(timeout=PATIENCE) == 0, "the exporter doesn't end well")
        self.process.stdout.close()


# ---- the browser ----------------------------------------------------------------------------------


class Browser:
    """Headless chromium, spoken to over a pipe."""

    def __init__(self, program, folder):
        to_read, self.to = os.pipe()
        self.come_from, to_write = os.pipe()
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_read, to_write)]
        os.close(to_read)
        os.close(to_write)

        def pass_pipe():
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)

        self.log = open(folder / "chromium.log", "w+")
        self.process = start(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync",
             "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, close_fds=False, preexec_fn=pass_pipe)
        for fd in theirs:
            os.close(fd)
        self.last, self.rest, self.events, self.session = 0, b"", [], None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def receive(self):
        while b"\0" not in self.rest:
            data = os.read(self.come_from, 1 << 16)
            expect(data, "chromium is gone")
            self.rest += data
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def ask(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.last:
                expect("result" in answer, f"{method}: {answer.get('error')}")
                return answer["result"]
            self.events.append(answer)

    def run(self, script):
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        expect("exceptionDetails" not in result, f"{script}: {result.get('exceptionDetails')}")
        return result["result"].get("value")

    def see(self, script, what):
        """Until the script says something that is true; returns that."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = self.run(script)
            if found:
                return found
            time.sleep(0.05)
        sys.exit(f"status-page.py: {what}: {script} is {found!r}; the page: {self.run('document.body.innerText')[:2000]}")

    def press(self, key):
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=9)

    def stop(self):
        try:
            self.session = None
            self.ask("Browser.close")
        except SystemExit:
            pass
        self.process.wait(timeout=PATIENCE)
        os.close(self.to)
        os.close(self.come_from)
        self.log.close()


# ---- what is expected -----------------------------------------------------------------------------

STATE = "document.documentElement?.dataset.state"
CACHED = ("[...document.querySelectorAll('#summary div')].find(d => d.textContent.startsWith('pages cached'))"
          ".querySelector('dd').textContent")


def check_http(it):
    """Headers of all that the page has; nothing but GET and HEAD; streams are bounded."""
    for path, kind in (("/", "text/html"), ("/status.js", "text/javascript"), ("/status.css", "text/css")):
        with urllib.request.urlopen(it.url + path, timeout=PATIENCE) as answer:
            policy = answer.headers["Content-Security-Policy"]
            expect(answer.headers["Content-Type"].startswith(kind), f"{path}: {answer.headers}")
            expect("default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy, f"{path}: {policy}")
            expect(answer.headers["X-Content-Type-Options"] == "nosniff", f"{path} may be sniffed")
            body = answer.read().decode()
            expect("http:" not in body.replace("http://www.w3.org/2000/svg", "") and "https:" not in body,
                   f"{path} names another place")
    for path in ("/", "/events", "/status.js"):
        try:
            urllib.request.urlopen(urllib.request.Request(it.url + path, b"x", method="POST"), timeout=PATIENCE)
            sys.exit(f"status-page.py: POST {path} is answered")
        except urllib.error.HTTPError as error:
            expect(error.code == 405, f"POST {path}: {error.code}")
    for host, status in (("localhost", 200), (f"127.0.0.1:{it.port}", 200), ("evil.example", 421), (f"evil.example:{it.port}", 421)):
        connection = http.client.HTTPConnection("127.0.0.1", it.port, timeout=PATIENCE)
        connection.request("GET", "/status.js", headers={"Host": host})
        answer = connection.getresponse()
        expect(answer.status == status and (status == 200 or b"--allow-host NAME" in answer.read()), f"{host}: {answer.status}")
        connection.close()
    streams = []
    for i in range(9):
        connection = http.client.HTTPConnection("127.0.0.1", it.port, timeout=PATIENCE)
        connection.request("GET", "/events")
        answer = connection.getresponse()
        expect(answer.status == (200 if i < 8 else 503), f"stream {i}: {answer.status}")
        if i < 8:
            expect(answer.headers["Content-Type"] == "text/event-stream", answer.headers)
            expect(answer.readline().startswith(b'data: {"up":true'), "the stream begins with something else")
        streams.append(connection)
    for connection in streams:
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()


def check_content(browser):
    browser.see(f"{STATE} === 'live'", "the page isn't live")
    expect(browser.run("document.querySelectorAll('#tenants tbody tr').length") == N_TENANTS, "not all tenants are there")
    names = browser.run("[...document.querySelectorAll('#tenants tbody th')].map(e => e.textContent)")
    expect(sorted(names) == [f"t{i:02}" for i in range(N_TENANTS)], f"tenants are {names}")
    tiers = browser.run("[...document.querySelectorAll('#tiers tbody tr')].map(e => e.innerText.split('\\t').slice(0, 3))")
    expect(tiers == [["host", "device", "ok"], ["host", "host memory", "ok"]], f"tiers are {tiers}")
    expect(browser.run("[...document.querySelectorAll('#regions tbody th')].some(e => e.textContent === 't01')"),
           "the reservation isn't there")
    expect(browser.run("document.querySelectorAll('#regions svg.bar rect.idle').length") == 1, "what is reserved isn't idle")
    expect(browser.run("document.querySelectorAll('#hour svg.chart').length") == 2, "the last hour isn't there")
    expect("no request" in browser.run("document.getElementById('hour').innerText"), "what nobody asked took no time")
    expect(browser.run("document.getElementById('still').hidden"), "what stands without a script is still there")


def check_live(browser, folder):
    """Pages come, others give way, and the page shows it without being loaded again."""
    browser.run("window.marked = true")
    before = browser.run(CACHED)
    for tenant in ("t00", "t02"):
        load = Worker(folder, tenant)
        for chain in range(6):
            load.tell(f"cache {chain} 256")
        load.tell("hits 5 5:0-7")
        if tenant == "t00":
            load.stop()  # what it has mapped wouldn't go over to the other one
    browser.see(f"{CACHED} !== {before!r}", "pages cached don't change")
    browser.see("!!document.querySelector('#evictions tbody tr')", "evictions aren't shown")
    heads = browser.run("[...document.querySelectorAll('#evictions thead th')].map(e => e.textContent)")
    expect(any(name.startswith("t0") for name in heads), f"the matrix has {heads}")
    expect(browser.run("[...document.querySelectorAll('#evictions td')].some(e => parseInt(e.textContent) > 0)"),
           "the matrix is empty")
    browser.see("!!document.querySelector('#regions svg.bar rect.excess')", "regions don't show what is used")
    # What has happened since the exporter's last sample counts.
    browser.see("/Hits since kvlease-exporter started: .* pages looked up/.test(document.getElementById('hour').innerText)",
                "lookups aren't shown while they happen")
    load.stop()
    expect(browser.run("window.marked === true"), "the page was loaded again")


EVENT = {
    "up": True, "version": "1", "uptime": 7, "draining": False, "clients": 1, "n_tenants": 250, "namespaces": 1,
    "sessions": 1, "cached": 3, "keys": 10, "hits": 5,
    "tiers": [{"device": "g", "tier": "device", "state": "ok", "budget": 1000, "used": 250, "reserved": 500},
              {"device": "g", "tier": "disk", "state": "off", "budget": 0, "used": 0, "reserved": 0}],
    "regions": [{"tenant": "a", "device": "g", "reserved": 500, "used": 100, "excess": 100, "lent": 50, "missing": 0}],
    "tenants": [{"name": "<img src=x onerror=window.owned=1>", "limit": None, "used": 1, "cached": 8, "below": 2,
                 "clients": 0, "refused": 0, "evicted": 0}],
    "evictions": [{"victim": "a", "by": "b", "pages": 40}, {"victim": "a", "by": "", "pages": 10}],
    # A gap of a quarter of an hour, and one point without lookups.
    "history": [[3600, 1, 2, 10, 100], [3585, 0, 0, 10, 200], [3570, 2, 2, 10, 200], [2700, 1, 1, 10, 100],
                [2685, 1, 1, None, None]],
}


def check_drawing(browser):
    """What is drawn of an event whose figures are known; before the next one comes."""
    drawn = browser.run(f"""show({json.dumps(EVENT)}); ({{
      lines: [...document.querySelectorAll('#hour path')].map(e => e.getAttribute('d')),
      bars: [...document.querySelectorAll('#regions .bar rect')].map(e => [e.getAttribute('class'), +e.getAttribute('x'), +e.getAttribute('width')]),
      matrix: [...document.querySelectorAll('#evictions tr')].map(e => [...e.children].map(c => c.textContent)),
      tiers: [...document.querySelectorAll('#tiers tbody tr')].map(e => [...e.children].map(c => c.className || c.querySelector('[class]')?.getAttribute('class'))),
      tenants: document.getElementById('tenants').innerText, markup: document.querySelectorAll('img').length}})""")
    ratio, slow, median = drawn["lines"]
    expect(ratio == "M0.0 65.0M5.0 10.0M150.0 10.0L152.5 10.0", f"hits are drawn as {ratio}")
    expect(slow == "M0.0 65.0L2.5 10.0L5.0 10.0M150.0 65.0", f"times are drawn as {slow}")
    expect(median.startswith("M0.0 114.5L"), f"the median is drawn as {median}")
    expect(drawn["bars"] == [["empty", 0, 1000], ["used", 0, 100], ["excess", 100, 100], ["lent", 200, 50], ["idle", 250, 350]],
           f"regions are drawn as {drawn['bars']}")
    expect(drawn["matrix"][1:] == [["a", "0", "40", "10"], ["b", "0", "0", "0"]], f"the matrix is {drawn['matrix']}")
    expect(drawn["tiers"][0][2] == "good" and drawn["tiers"][1][2] == "bad", f"tiers are {drawn['tiers']}")
    expect("<img src=x" in drawn["tenants"] and drawn["markup"] == 0, "a name becomes markup")
    expect("no limit" in drawn["tenants"] and "249 more" in drawn["tenants"], f"tenants are {drawn['tenants']}")
    expect(browser.run("window.owned === undefined"), "a name is executed")


LUMINANCE = """(color => { const c = color.match(/[0-9.]+/g).slice(0, 3).map(v => { v /= 255;
  return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; })"""


def check_looks(browser):
    grounds = set()
    for scheme in ("light", "dark"):
        browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        for width in (360, 768, 1920):
            browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            size = browser.run("document.documentElement.scrollWidth")
            expect(size <= width, f"at {width} pixels the page has {size}")
            cut = browser.run("[...document.querySelectorAll('caption span')].filter(e => e.getBoundingClientRect().right > "
                              "e.closest('.scroll').getBoundingClientRect().right + 1).map(e => e.textContent)")
            expect(not cut, f"at {width} pixels captions are cut: {cut}")
            bars = browser.run("Math.min(...[...document.querySelectorAll('svg.bar')].map(e => e.getBoundingClientRect().width))")
            expect(bars >= 100, f"at {width} pixels a bar has {bars}")
        style = "getComputedStyle(document.querySelector('{}')).{}"
        ground = browser.run(style.format("body", "backgroundColor"))
        grounds.add(ground)
        for what in ("body", "dt", "caption", "figcaption", ".good", "a"):
            ink = browser.run(style.format(what, "color"))
            a, b = sorted(browser.run(f"[{ink!r}, {ground!r}].map({LUMINANCE})"))
            expect((b + 0.05) / (a + 0.05) >= 4.5, f"{scheme}: {what} is {ink} on {ground}")
    expect(len(grounds) == 2, f"light and dark are {grounds}")


def check_access(browser):
    """By keyboard every table is reached, and the focus outlives updates; pictures and tables have names."""
    wanted = browser.run("[...document.querySelectorAll('.scroll')].map(e => e.getAttribute('aria-label'))")
    browser.run("document.activeElement.blur()")
    seen = []
    for _ in range(len(wanted) + 3):
        browser.press("Tab")
        seen.append(browser.run("document.activeElement.getAttribute('aria-label')"))
        expect(browser.run("document.activeElement === document.body || "
                           "getComputedStyle(document.activeElement).outlineStyle !== 'none'"), f"{seen[-1]}: no outline")
    expect(all(name in seen for name in wanted), f"Tab goes to {seen}, and not to all of {wanted}")
    browser.run("document.querySelector('#tenants .scroll').focus(); window.old = document.querySelector('#tenants table')")
    browser.see("document.querySelector('#tenants table') !== window.old", "there is no update")
    expect(browser.run("document.activeElement === document.querySelector('#tenants .scroll')"), "an update takes the focus")
    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    roles = {}
    for node in nodes:
        if not node.get("ignored"):
            roles.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    pictures = roles.get("image", []) + roles.get("img", [])
    expect(len(pictures) >= N_TENANTS and all(pictures), f"{len(pictures)} pictures, {pictures.count('')} without a name")
    expect(len(roles.get("table", [])) >= 4 and all(roles["table"]), f"tables are {roles.get('table')}")
    expect(len(roles.get("heading", [])) == 7, f"headings are {roles.get('heading')}")
    expect("main" in roles and "status" in roles, f"roles are {sorted(roles)}")


def check_away(browser, daemon, it):
    daemon.stop()
    browser.see(f"{STATE} === 'away'", "the page doesn't notice that the daemon is away")
    expect("admin.sock" in browser.run("document.getElementById('still').innerText"), "it doesn't say why")
    daemon.start()
    browser.see(f"{STATE} === 'live'", "the page doesn't notice that the daemon is back")
    it.stop()
    browser.see(f"{STATE} === 'lost'", "the page doesn't notice that the exporter is gone")
    it.start()
    browser.see(f"{STATE} === 'live'", "the page doesn't notice that the exporter is back")
    expect(browser.run("window.marked === true"), "the page was loaded again")


def check_network(browser, it):
    asked = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    expect(len(asked) >= 4 and all(url.startswith(it.url + "/") for url in asked), f"it asked for {set(asked)}")
    said = [e["params"]["entry"]["text"] for e in browser.events if e["method"] == "Log.entryAdded"]
    expect(not [text for text in said if "Content Security Policy" in text], f"the policy is broken: {said}")
    thrown = [e for e in browser.events if e["method"] == "Runtime.exceptionThrown"]
    expect(not thrown, f"the script throws {thrown[:1]}")


def main():
    program = shutil.which("chromium")
    with tempfile.TemporaryDirectory(prefix="kvl-page-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        daemon = Daemon(folder)
        it = Exporter(folder)
        check_http(it)
        if program:
            browser = Browser(program, folder)
            browser.ask("Page.navigate", url=it.url + "/")
            check_content(browser)
            check_live(browser, folder)
            check_drawing(browser)
            check_looks(browser)
            check_access(browser)
            check_away(browser, daemon, it)
            check_network(browser, it)
            browser.stop()
        it.stop()
        daemon.stop()
    if not program:
        print("skipped: no chromium to open the status page in")
        return 77
    print("the status page is as it should be")
    return 0


def end_all():
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    try:
        code = main()
    finally:
        end_all()
    sys.exit(code)
