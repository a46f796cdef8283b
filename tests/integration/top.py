#!/usr/bin/python3
"""kvleasectl top on a terminal, with a daemon and a worker: keys, sizes, restarts, and how it ends.

    top.py KVLEASED KVLEASECTL WORKER

The terminal is a pseudo-terminal that pyte reads; skipped (exit status 77) where there is no pyte.
Nothing here sleeps: what is to be seen is waited for.
"""
import fcntl
import json
import os
import pathlib
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

try:
    import pyte
except ImportError:
    print("no pyte: apt-get install python3-pyte")
    sys.exit(77)

kvleased, kvleasectl, worker = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:])
PATIENCE = 60  # s; under valgrind and beside other tests it takes its time
ENTER_SCREEN, LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"


started = []  # processes, to be ended whatever comes


def start(*args, **kwargs):
    started.append(subprocess.Popen(*args, **kwargs))
    return started[-1]


def expect(condition, what):
    if not condition:
        sys.exit(f"top.py: {what}")


class Daemon:
    def __init__(self, folder):
        self.folder = folder
        (folder / "none.conf").touch()
        self.env = {**os.environ, "KVLEASE_ADMIN_SOCKET": str(folder / "run/admin.sock")}
        self.start()

    def start(self):
        options = ["daemon.devices=host", "device.host.memory=64MiB", "device.host.extent=2MiB",
                   "device.host.host_memory=32MiB", "tenant.chat.limit=16MiB",
                   "tenant.search.limit=32MiB", "tenant.search.class=pinned",
                   "tenant.search.reserve=8MiB"]
        self.process = start(
            [kvleased, "-c", self.folder / "none.conf", "--runtime-dir", self.folder / "run",
             "--state-dir", self.folder / "state", *(w for o in options for w in ("-o", o))],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            if "ready in" in line:
                return
        sys.exit("top.py: kvleased didn't start")

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()


class Load:
    """A worker of tenant chat that finds pages until it is told to stop."""

    def __init__(self, daemon):
        self.process = start([worker], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for command in (f"connect {daemon.folder}/run/t/chat/sock", "open llama 1", "cache 1 8"):
            expect(self.ask(command).startswith("0"), f"the worker doesn't {command}")
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def run(self):
        try:
            while not self.over.wait(0.02):
                self.ask("hits 5 1:0-7")
        except BrokenPipeError:
            pass  # it was killed

    def stop(self):
        """Without a daemon it would wait for the next one."""
        self.process.kill()
        self.over.set()
        self.thread.join()
        self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()


class Top:
    """kvleasectl top on a terminal of its own."""

    def __init__(self, daemon, *options, columns=110, lines=30, term="xterm-256color", **env):
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.master, self.slave = os.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.slave)
        environment = {k: v for k, v in daemon.env.items() if k != "NO_COLOR"}
        self.process = start(
            [kvleasectl, "top", *options], stdin=self.slave, stdout=self.slave, stderr=self.slave,
            env={**environment, "TERM": term, **env}, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, columns, lines):
        """The kernel sends SIGWINCH."""
        self.screen.resize(lines, columns)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, seconds):
        if not select.select([self.master], [], [], max(seconds, 0))[0]:
            return False
        data = os.read(self.master, 65536)
        self.raw += data
        self.stream.feed(data)
        return True

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    def see(self, wanted, but=None):
        """Until the screen matches the pattern, and doesn't match the other one."""
        until = time.monotonic() + PATIENCE
        while not re.search(wanted, self.text(), re.M) or (but and re.search(but, self.text(), re.M)):
            if not self.read(until - time.monotonic()) and time.monotonic() >= until:
                sys.exit(f"top.py: waited for '{wanted}' without '{but}', and saw\n{self.text()}")

    def press(self, keys, wanted, but=None):
        os.write(self.master, keys.encode())
        self.see(wanted, but)

    def end(self, status):
        """Its exit status, and a terminal as it was before."""
        until = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            expect(time.monotonic() < until, "it doesn't end")
            self.read(0.05)
        while self.read(0):
            pass
        expect(self.process.returncode == status,
               f"ended with {self.process.returncode} rather than {status}\n{self.text()}")
        after = termios.tcgetattr(self.slave)
        # The screen's size isn't among these; a pending SIGWINCH may have been.
        expect(after == self.before, f"terminal modes {after} rather than {self.before}")
        expect(self.raw.count(ENTER_SCREEN) == self.raw.count(LEAVE_SCREEN), "the other screen is left on")
        os.close(self.master)
        os.close(self.slave)


def rows(top, names):
    """Those of the names that begin a line, in their order."""
    lines = (line.split() for line in top.text().splitlines())
    return [words[0] for words in lines if words and words[0] in names]


def test_views_and_rates(daemon):
    top = Top(daemon, "--interval", "0.2")
    top.see(r"^TENANT +TOKEN/S +HIT/S")
    # 16 tokens a page, all of them found.
    top.see(r"^chat +[1-9][\d.k]* +[1-9][\d.]* +0\.0 +100\.0 ")
    top.see(r"^search +0\.0 +0\.0 +0\.0 +- ")
    top.see(r"^kvleased \S+, up .*2 tenants, 1 namespace, 1 client +every")
    top.see(r"^memory  host 2 MiB of 64 MiB \(3\.1 %\): pinned 0 B of 8 MiB, pool 2 MiB of 56 MiB; frag")
    top.see(r"^below   host 0 B of 32 MiB")
    top.press("n", r"^chat +llama +[1-9][\d.k]* ", but="^search")
    top.press("c", r"^ *ID +TENANT +NAME +PID")
    top.see(r"^ *\d+ +chat +worker +\d+ +active")
    top.press("g", r"^host +\(dynamic pool\) +56 MiB +2 MiB")
    top.press("\t", r"^TENANT +TOKEN/S")
    top.press("q", "")
    top.end(0)


def test_sort_and_filter(daemon):
    top = Top(daemon, "--sort", "Tenant")
    top.see(r"2 tenants by TENANT ")
    expect(rows(top, ("chat", "search")) == ["chat", "search"], "not in alphabetical order")
    top.press("r", r"by TENANT reversed")
    expect(rows(top, ("chat", "search")) == ["search", "chat"], "not the other way round")
    top.press(">", r"by TOKEN/S ", but="reversed x")
    top.press("<", r"by TENANT")
    top.press("<", r"by DISK ")  # from the first to the last
    top.press("s", r"by TENANT")
    top.press("/SEAx", r"^filter: SEAx_")
    top.press("\x7f", r"^filter: SEA_")
    top.press("\r", r"1 tenants by .*filter 'SEA'", but="^chat")
    top.press("\x1b", r"2 tenants", but="filter 'SEA'")
    top.see("^chat")
    os.write(top.master, b"q")
    top.end(0)


def test_help_pause_interval(daemon):
    top = Top(daemon, "--interval=0.5")
    top.press("h", r"^r +the other way round")
    top.press("x", r"^TENANT +TOKEN/S", but="the other way round")
    top.press("?", r"^q +end")
    top.press("n", r"^TENANT +NAMESPACE")
    top.press("+", r"every 1s")
    top.press("--", r"every 0\.2s")
    top.press(" ", r"paused, 0\.2s")
    top.press("c", r"^ *ID +TENANT")  # asked for in a pause, too
    top.see(r"^ *\d+ +chat +worker")
    top.press(" ", r"every 0\.2s")
    os.write(top.master, b"q")
    top.end(0)


def test_pause_holds(daemon):
    """What is shown stays, as the rates of a load that goes on change with every look."""
    top = Top(daemon, "--interval=0.1", "--bytes")
    top.see(r"^chat +[1-9]")
    top.press(" ", r"paused,")
    while top.read(0.3):
        pass
    held = top.text()
    while top.read(0.5):
        pass
    expect(top.text() == held, "the screen goes on in a pause")
    top.press(" ", r"every 0\.1s")
    until = time.monotonic() + PATIENCE
    while top.text().splitlines()[1] == held.splitlines()[1] and time.monotonic() < until:
        top.read(0.1)
    expect(top.text().splitlines()[1] != held.splitlines()[1], "nothing goes on after a pause")
    os.write(top.master, b"q")
    top.end(0)


def test_sizes(daemon):
    top = Top(daemon, columns=200, lines=24)
    top.see(r"^TENANT .* HOST +DISK$")
    # Lines above the table are broken, and not cut.
    top.resize(80, 24)
    top.see(r"^memory  host 2 MiB of .*\n {8}fragmentation \d[\d.]* %$", but=r"DISK$")
    top.resize(60, 14)
    top.see(r"^TENANT +TOKEN/S", but=r"DISK$")
    top.press("\x1bOC", r"^TENANT +HIT/S", but="TOKEN/S +HIT/S +MISS/S +HIT% +REQ")
    top.resize(30, 6)
    top.see(r"^The terminal has 30 x 6; top n")
    top.resize(40, 10)
    top.see(r"^TENANT +HIT/S", but="The terminal has")
    top.resize(120, 40)
    top.see(r"^below ", but="The terminal has")
    os.write(top.master, b"q")
    top.end(0)


def read_over_restart(batch, uptime):
    """Objects of a batch until one of the next daemon has hits: no rate below 0, and none at first.
    uptime: of the daemon before, by the last object that was read."""
    is_next = False
    until = time.monotonic() + PATIENCE
    for line in batch.stdout:
        expect(time.monotonic() < until, f"no hits of the next daemon: {line}")
        look = json.loads(line)
        rates = look["totals"]
        expect(all(v is None or v >= 0 for v in rates.values()), f"negative: {line}")
        if look["uptime_sec"] < uptime and not is_next:
            is_next = True
            expect(rates["lookups_per_sec"] is None, f"rates over a restart: {line}")
        uptime = look["uptime_sec"]
        if is_next and rates["hit_pages_per_sec"]:
            return
    sys.exit("top.py: the batch ended")


def test_restart(daemon, load):
    """It says that the daemon is away, waits, and goes on with the next one. Returns a new load."""
    top = Top(daemon, "--interval=0.2", columns=150)
    batch = start([kvleasectl, "top", "--batch", "--json", "--interval=0.1"], env=daemon.env,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    top.see(r"^chat +[1-9]")
    look = json.loads(batch.stdout.readline())
    expect(look["totals"]["hit_ratio"] == 1, "not everything was found")
    daemon.stop()
    top.see(r"^waiting for kvleased: (there is no socket|no process listens)")
    expect(b"\x1b[31m" in top.raw, "it isn't red")
    said = batch.stderr.readline()
    expect(said.startswith("kvleasectl: waiting for kvleased: "), f"said '{said}'")
    load.stop()
    daemon.start()
    top.see(r"up \ds: 2 tenants, 0 namespaces, 0 clients", but="^waiting for")
    load = Load(daemon)
    top.see(r"^chat +[1-9][\d.k]* +[1-9]")
    expect(not re.search(r" -\d", top.text()), f"a rate is negative\n{top.text()}")
    os.write(top.master, b"q")
    top.end(0)
    read_over_restart(batch, look["uptime_sec"])
    batch.terminate()
    expect(batch.stderr.read() == "", "it said more than that it waits")
    batch.stdout.close()
    batch.stderr.close()
    batch.wait(timeout=PATIENCE)
    return load


def test_slow(daemon):
    """A daemon that doesn't answer holds up neither keys nor the end."""
    top = Top(daemon, "--interval=0.2")
    top.see(r"^chat +[1-9]")
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        top.see(r"^waiting for kvleased: no answer for \d+ s")
        top.press("h", r"the other way round")
        began = time.monotonic()
        os.write(top.master, b"q")
        top.end(0)
        expect(time.monotonic() - began < 20, "it waited for the daemon")
    finally:
        daemon.process.send_signal(signal.SIGCONT)


def test_ends(daemon):
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        top = Top(daemon)
        top.see("^TENANT")
        top.process.send_signal(number)
        top.end(-number)
    top = Top(daemon)
    top.see("^TENANT")
    os.write(top.master, b"\x03")
    top.end(-signal.SIGINT)


def test_no_colour(daemon):
    top = Top(daemon, "--interval=0.2", NO_COLOR="1")
    top.see("^TENANT")
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        top.see("^waiting for kvleased")
        colours = re.findall(rb"\x1b\[[\d;]*[34]\d[\d;]*m", top.raw)
        expect(not colours, f"there are colours in spite of NO_COLOR: {colours}")
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    os.write(top.master, b"q")
    top.end(0)


def test_no_terminal(daemon):
    top = Top(daemon, term="nothing-known")
    top.end(2)
    top.see("'nothing-known' isn't known: set TERM, or --batch")


def test_help_has_columns(daemon):
    """The views as --help names them are those that there are: what shells complete is made of that."""
    text = subprocess.run([kvleasectl, "top", "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
    text = re.sub(r",\n +", ", ", text)
    for view in ("tenants", "namespaces", "clients", "regions"):
        done = subprocess.run([kvleasectl, "top", "--view", view, "--sort", "x"], stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        columns = done.stderr.strip().split("it has ")[1]
        expect(re.search(rf"^  {view} +{re.escape(columns)}$", text, re.M), f"--help: not {view} {columns}")


def main():
    with tempfile.TemporaryDirectory(prefix="kvl-top-") as folder:
        daemon = Daemon(pathlib.Path(folder))
        load = Load(daemon)
        try:
            for test in (test_views_and_rates, test_sort_and_filter, test_help_pause_interval,
                         test_pause_holds, test_sizes, test_slow, test_ends, test_no_colour,
                         test_no_terminal, test_help_has_columns):
                began = time.monotonic()
                test(daemon)
                print(f"{test.__name__}: ok, {time.monotonic() - began:.1f} s", flush=True)
            load = test_restart(daemon, load)
            print("test_restart: ok")
            load.stop()
            daemon.stop()
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()


main()
