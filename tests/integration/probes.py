#!/usr/bin/env python3
"""Static probes are met, with the arguments that docs/reference/PROBES.md says; so do the scripts for bpftrace.

    probes.py traps|scripts SOURCE KVLEASED KVLEASECTL WORKER LIBKVLEASE

traps: a daemon, and workers that lease, hit, miss, evict, demote, promote, invalidate and are recalled
from, under probe-tracer.py (ptrace); every probe must be met. scripts: the same load under bpftrace and
packaging/bpftrace. Exit status 77 where that can't be done here; the last line says why.
"""
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

mode, source, *programs = sys.argv[1:]
source = pathlib.Path(source).resolve()
kvleased, kvleasectl, worker, library = (pathlib.Path(p).resolve() for p in programs)
sys.path.insert(0, str(source / "tests/tools"))
from usdt import documented

SKIPPED = 77
WAIT_SEC = 60
MISS, DUPLICATE, FULL, NO_PAGE = 1, 2, 4, 2**32 - 1
NAMESPACE_CAUSE, POOL_FULL = 4, 3


started = []  # what a failure ends


def start(command, **more):
    process = subprocess.Popen([str(word) for word in command], text=True, **more)
    started.append(process)
    return process


def fail(message):
    sys.exit(f"probes: {message}")


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def environment(**more):
    # The leak checker is a tracer itself, and there is one already; a library that comes first isn't ASan's.
    asan = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0:verify_asan_link_order=0"
    return {**os.environ, "ASAN_OPTIONS": asan, **more}


class Lines:
    """What a process prints, taken as it comes."""

    def __init__(self, stream):
        self.lines, self.changed = [], threading.Condition()
        threading.Thread(target=self.take, args=(stream,), daemon=True).start()

    def take(self, stream):
        for line in stream:
            with self.changed:
                self.lines.append(line.rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.lines.append(None)  # its end
            self.changed.notify_all()

    def wait(self, is_it, seconds=WAIT_SEC):
        """The first line of which is_it(line) is true; None: it is over, or too late."""
        with self.changed:
            self.changed.wait_for(lambda: None in self.lines or any(map(is_it, self.lines)), seconds)
            return next((line for line in self.lines if line is not None and is_it(line)), None)

    def text(self):
        with self.changed:
            return "\n".join(line for line in self.lines if line is not None)


# ---- daemon and workers --------------------------------------------------------------------------


class Daemon:
    """Two tenants on 4 MiB, and for a 4 MiB below: pages of 4 KiB, 512 of them in a set."""

    def __init__(self, folder, program):
        self.folder = folder
        (folder / "kvleased.conf").write_text(
            f"[daemon]\ndevices = host\nruntime_dir = {folder}/run\nstate_dir = {folder}/state\n"
            "revoke_timeout = 200ms\n[device host]\nmemory = 4MiB\nextent = 2MiB\nhost_memory = 4MiB\n"
            "[tenant a]\n[tenant b]\nlimit = 4MiB\nhost_limit = 0\n")
        self.process = start([program, "-c", folder / "kvleased.conf"], env=environment(),
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.log = Lines(self.process.stdout)
        if not self.log.wait(lambda line: "ready in" in line):
            fail(f"kvleased didn't start:\n{self.log.text()}")

    def ctl(self, *words):
        return subprocess.run([kvleasectl, *words], check=True, stdout=subprocess.PIPE, timeout=WAIT_SEC, text=True,
                              env=environment(KVLEASE_ADMIN_SOCKET=str(self.folder / "run/admin.sock"))).stdout

    def wait_clients(self, n):
        deadline = time.monotonic() + WAIT_SEC
        while len(json.loads(self.ctl("--json", "clients"))["clients"]) != n:
            if time.monotonic() > deadline:
                fail(f"there aren't {n} clients")

    def stop(self):
        self.process.terminate()
        if self.process.wait(timeout=WAIT_SEC) != 0:
            fail(f"kvleased: exit {self.process.returncode}\n{self.log.text()}")


class Worker:
    def __init__(self, **more):
        self.process = start([worker], env=environment(**more), bufsize=1, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)

    def ask(self, line):
        """(code, numbers) that it answers."""
        self.process.stdin.write(line + "\n")
        words = self.process.stdout.readline().split()
        if not words:
            fail(f"the worker died at '{line}'")
        return int(words[0]), [int(w) for w in words[1:] if w.isdigit()]

    def tell(self, line):
        code, numbers = self.ask(line)
        if code != 0:
            fail(f"'{line}': {code}")
        return numbers

    def release(self, pages):
        if pages:
            self.tell("release " + " ".join(map(str, pages)))

    def open(self, daemon, tenant, namespace):
        self.tell(f"connect {daemon.folder}/run/t/{tenant}/sock")
        self.tell(f"open {namespace} 1")

    def stop(self):
        self.process.stdin.write("exit\n")
        if self.process.wait(timeout=WAIT_SEC) != 0:
            fail(f"the worker: exit {self.process.returncode}")


# ---- the load ------------------------------------------------------------------------------------


def publish_and_hit(w, chain):
    w.tell(f"cache {chain} 8")
    w.release(w.tell(f"lookup {chain}:0-7"))
    if w.ask("lookup 99:0")[0] != MISS:
        fail("a chain that nobody published was found")


def overflow(w, first, has_enough):
    """Texts of 64 pages until pages go down. Returns the chain after the last one."""
    deadline, chain = time.monotonic() + WAIT_SEC, first
    while not has_enough():
        if time.monotonic() > deadline:
            fail("nothing went down a tier")
        w.tell(f"cache {chain} 64")
        chain += 1
    return chain


def bring_up(w, chains, is_up):
    deadline = time.monotonic() + WAIT_SEC
    while not is_up():
        if time.monotonic() > deadline:
            fail("nothing came up a tier")
        for chain in chains:
            code, pages = w.ask(f"lookup {chain}:0-63")
            w.release(pages if code == 0 else [])


# ---- traps ---------------------------------------------------------------------------------------


class Tracer:
    def __init__(self, daemon, *workers):
        processes = [kvleased, daemon.process.pid]
        for w in workers:
            processes += [library, w.process.pid]
        self.process = start([sys.executable, source / "tests/integration/probe-tracer.py",
                              source / "docs/reference/PROBES.md", *processes], stdout=subprocess.PIPE)
        self.lines = Lines(self.process.stdout)
        if not self.lines.wait(lambda line: line == "attached"):
            why = self.lines.text()
            self.process.wait(timeout=WAIT_SEC)
            if self.process.returncode == SKIPPED:
                skip(why.split("\n")[-1])
            fail("the tracer didn't start")

    def matching(self, probe, **values):
        """Of the passes those with these arguments."""
        wanted = {"probe": probe, **values}.items()
        with self.lines.changed:
            rows = [json.loads(line) for line in self.lines.lines if line and line.startswith("{")]
        return [row for row in rows if wanted <= row.items()]

    def has(self, probe, **values):
        return bool(self.matching(probe, **values))

    def need(self, probe, n=1, **values):
        """They come a moment after the answer that told of them, and no more than n then."""
        deadline = time.monotonic() + WAIT_SEC
        while len(self.matching(probe, **values)) < n and time.monotonic() < deadline:
            with self.lines.changed:
                self.lines.changed.wait(1)
        found = self.matching(probe, **values)
        if len(found) < n:
            others = self.matching(probe)[-3:]
            fail(f"{probe} {values}: {len(found)} passes rather than {n}; of all: {others}")
        return found


def trace_pages(t, wa):
    """What a client does is what the library's and the daemon's probes say of it."""
    publish_and_hit(wa, 1)
    if wa.ask("cache 1 8")[0] != DUPLICATE:
        fail("a text that is there was published again")
    t.need("kvlease:lease", namespace="m", pages=8)
    leased = t.need("kvlease:leased", namespace="m", status=0, pages=8)[0]
    t.need("kvlease:publish", namespace="m", pages=8)
    t.need("kvlease:published", namespace="m", status=0, pages=8)
    t.need("kvlease:lookup", namespace="m", keys=8)
    hit = t.need("kvlease:hit", namespace="m", pages=8, tokens=128)[0]
    t.need("kvlease:miss", namespace="m", status=MISS)
    if 0 in (leased["leased"], hit["found"]):
        fail("a list of pages is at 0")
    client = t.need("kvleased:lease", tenant="a", namespace="m", asked=100, pages=100)[0]["client"]
    t.need("kvleased:refill", tenant="a", namespace="m", client=client)
    new = t.need("kvleased:publish", 108, tenant="a", namespace="m", client=client, tokens=16, what=0)
    again = t.need("kvleased:publish", 8, tenant="a", namespace="m", client=client, tokens=16, what=2)
    if [row["page"] for row in new[100:]] != [row["page"] for row in again]:
        fail("a duplicate's page isn't the one that was published")
    t.need("kvlease:published", namespace="m", status=DUPLICATE, pages=8)


def trace_refusal(t, wb):
    if wb.ask("lease 2000")[0] != FULL:
        fail("a lease beyond the device wasn't refused")
    t.need("kvleased:refuse", tenant="b", namespace="n", asked=2000, reason=POOL_FULL, status=FULL)
    t.need("kvlease:leased", namespace="n", status=FULL)


def trace_tiers(t, wa):
    # The oldest text, 2, goes down first: of the others maybe nothing does.
    last = overflow(wa, 100, lambda: t.has("kvleased:demote", tier=1))
    down = t.need("kvleased:demote", tenant="a", namespace="m", tier=1)[0]
    begun = t.need("kvleased:transfer", id=down["id"], page=down["from"], kind=0, bytes=4096)
    t.need("kvleased:transferred", id=begun[0]["id"])
    bring_up(wa, (2, *range(100, last)), lambda: t.has("kvleased:promote"))
    up = t.need("kvleased:promote", tenant="a", namespace="m", tier=1)[0]
    asked = t.need("kvleased:fetch", tenant="a", namespace="m", page=up["from"], to=NO_PAGE, down=0)
    t.need("kvleased:fetched", id=asked[-1]["id"])
    t.need("kvleased:fetched", status=0, page=up["to"])


def trace_evictions(t, daemon, wa, wb):
    """b has no tier below: its pages give way to its own leases, and, once nobody maps them, to a's."""
    for chain in range(5):
        wb.tell(f"cache {chain} 256")
    t.need("kvleased:evict", tenant="b", namespace="n", tokens=16, cause=0, by="b")
    wb.tell("disconnect")
    daemon.wait_clients(1)
    wa.tell("cache 2 100")
    t.need("kvleased:evict", tenant="b", namespace="n", tokens=16, cause=0, by="a")


def trace_recall(t, daemon, wa, wb):
    """b is told, doesn't listen until it is late, then lets go."""
    wa.tell("disconnect")
    daemon.wait_clients(0)
    wb.open(daemon, "b", "n")
    pages = wb.tell("lease 8")
    daemon.ctl("recall", "b")
    recalled = t.need("kvleased:recall", tenant="b", namespace="n", kind=0, by="")[0]
    t.need("kvleased:revoke", tenant="b", namespace="n", set=recalled["set"], state=1)
    t.need("kvleased:late", tenant="b", namespace="n", set=recalled["set"])
    wb.tell("free " + " ".join(map(str, pages)))
    deadline = time.monotonic() + WAIT_SEC
    while not t.has("kvleased:recalled", tenant="b", namespace="n", bytes=2 << 20):
        if time.monotonic() > deadline:
            fail("what was recalled didn't come back")
        wb.tell("events")
        wb.ask("safepoint")
        with t.lines.changed:
            t.lines.changed.wait(0.05)


def trace_invalidation(t, wa, daemon):
    wa.open(daemon, "a", "m")
    wa.tell("cache 3 8")
    t.need("kvleased:refill", 2, tenant="a", namespace="m")
    n, = wa.tell("invalidate all")
    t.need("kvleased:invalidate", tenant="a", namespace="m", pages=n, cause=NAMESPACE_CAUSE)
    t.need("kvleased:take_back", tenant="a", namespace="m")


def traps(folder):
    if platform.machine() != "x86_64":
        skip(f"the tracer knows x86_64, not {platform.machine()}")
    daemon, wa, wb = Daemon(folder, kvleased), Worker(), Worker()
    wa.open(daemon, "a", "m")
    wb.open(daemon, "b", "n")
    t = Tracer(daemon, wa, wb)
    trace_refusal(t, wb)
    trace_evictions(t, daemon, wa, wb)
    trace_pages(t, wa)
    trace_tiers(t, wa)
    trace_recall(t, daemon, wa, wb)
    trace_invalidation(t, wa, daemon)
    for w in (wa, wb):
        w.stop()
    daemon.stop()
    if t.process.wait(timeout=WAIT_SEC) != 0:
        fail(f"the tracer: exit {t.process.returncode}")
    names = documented(source / "docs/reference/PROBES.md")
    missing = [f"{p}:{n}" for p, n in names if not t.has(f"{p}:{n}")]
    if missing:
        fail(f"never met: {', '.join(missing)}")
    passes = sum(line is not None and line.startswith("{") for line in t.lines.lines)
    print(f"{len(names)} probes met, {passes} passes: ok")


# ---- scripts -------------------------------------------------------------------------------------

# tracefs is where bpftrace looks for it, in a namespace of its own: the machine's mounts stay as they are.
PRIVATE = ["unshare", "--mount", "sh", "-c",
           'test -e /sys/kernel/tracing/uprobe_events || mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"', "sh"]


def start_bpftrace(*arguments):
    return start([*PRIVATE, "bpftrace", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def need_bpftrace(program):
    """Attaches to a probe, and lets it go: does that work here?"""
    if not shutil.which("bpftrace"):
        skip("bpftrace isn't installed")
    if os.geteuid() != 0:
        skip("bpftrace needs root")
    tried = start_bpftrace("-e", f"usdt:{program}:kvleased:lease {{ }} interval:ms:1 {{ exit() }}")
    try:
        said, _ = tried.communicate(timeout=WAIT_SEC)
    except subprocess.TimeoutExpired:
        tried.kill()
        fail("bpftrace doesn't come to an end")
    if tried.returncode != 0 or "failed" in said:
        skip("bpftrace can't attach here: " + said.strip().split("\n")[-1])


class Script:
    """One of packaging/bpftrace with other files to look at, and told each second."""

    def __init__(self, name, folder, files):
        text = (source / "packaging/bpftrace" / f"{name}.in").read_text()
        for token, path in files.items():
            text = text.replace(f"@{token}@", str(path))
        (folder / name).write_text(text.replace("interval:s:10", "interval:s:1"))
        self.name, self.process = name, start_bpftrace(str(folder / name))
        self.lines = Lines(self.process.stdout)

    def says(self, *patterns):
        text = self.lines.text()
        return all(re.search(p, text, re.M) for p in patterns)

    def end(self, *patterns):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=WAIT_SEC)
        if self.process.returncode != 0 or not self.says(*patterns):
            fail(f"{self.name}: exit {self.process.returncode}, or what is missing in:\n{self.lines.text()}")


def scripts(folder):
    # Copies, as a probe is of a file: other tests that run at this time aren't to be stopped at.
    files = {"kvleased": folder / "kvleased", "libkvlease": folder / "libkvlease.so.0"}
    shutil.copy(kvleased, files["kvleased"])
    shutil.copy(library, files["libkvlease"])
    need_bpftrace(files["kvleased"])
    daemon, wa = Daemon(folder, files["kvleased"]), Worker(LD_PRELOAD=str(files["libkvlease"]))
    wa.open(daemon, "a", "m")
    evictions, latency = (Script(name, folder, files) for name in ("kvl-evictions.bt", "kvl-latency.bt"))
    live = r"^@pages_per_second\[a, a?, lease, limit or tier\]: \d+"
    histograms = [rf"^@{name}\[m\]: *$" for name in
                  ("hit_ns", "miss_ns", "lease_ns", "publish_ns", "fetch_us", "promote_us", "demote_us")]
    deadline, chain = time.monotonic() + WAIT_SEC, 100
    while not (evictions.says(live) and latency.says(*histograms)) and time.monotonic() < deadline:
        if evictions.process.poll() is not None or latency.process.poll() is not None:
            break
        publish_and_hit(wa, chain)
        for chain in range(chain + 1, chain + 41):
            wa.tell(f"cache {chain} 64")
            daemon.ctl("status")  # meanwhile pages go down: a lease evicts rather than wait for that
        for cold in range(chain - 30, chain - 10):
            code, pages = wa.ask(f"lookup {cold}:0-63")
            wa.release(pages if code == 0 else [])
        chain += 1
    evictions.end(live, r"^@pages\[a, m, a?, lease, limit or tier\]: \d+", r"^@tokens\[a, m\]: \d+",
                  r"^@demoted\[a, m, host memory\]: \d+")
    latency.end(*histograms)
    if "ERROR" in re.sub(r"ERROR: .*RLIMIT_MEMLOCK.*", "", evictions.lines.text() + latency.lines.text()):
        fail(f"bpftrace complains:\n{evictions.lines.text()}\n{latency.lines.text()}")
    wa.stop()
    daemon.stop()
    print("two scripts: ok")


with tempfile.TemporaryDirectory(prefix="kvl-probes-") as directory:
    try:
        {"traps": traps, "scripts": scripts}[mode](pathlib.Path(directory))
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
