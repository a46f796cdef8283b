#!/usr/bin/env python3
"""Commands of README.md and docs/start on machines where nothing is installed: README.md's in a Debian 12, pip and the
packages in a Debian 13: fresh.py SOURCE COUNTS

Both are made by debootstrap, once (~/.cache/kvlease/debian-SUITE), copied, and entered with mounts and processes of
their own; nothing else keeps them from this machine. In each lies a clone of SOURCE, without what isn't committed, in
the home of root, which others can't enter. Registries are those of this machine. Says each step with its time; COUNTS
gets how many passed, failed and were skipped. KVL_FULL: a vLLM as well, from the packages in ~/.cache/kvlease, and the
short suite. Exit status: 0, whatever failed; 1 where SOURCE isn't as this expects it.
"""
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time

import debian
from guide import Guide

SOURCE, COUNTS = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
FULL = bool(os.environ.get("KVL_FULL"))
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "kvlease"
CACHE_DAYS = 30  # days, as Debian has updates; not tuned
DISK_BYTES = 8 << 30
CLONE = "root/kvlease"
TAIL = 100  # lines of a failed step's output
PASSED_ON = re.compile("(https?|no)_proxy|PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|DEFAULT_TIMEOUT)", re.IGNORECASE)

# Mounts that a container has, too: /proc, /sys, and the part of /dev that debootstrap makes.
ENTER = """
root=$1 cache=$2
shift 2
mount --bind -o ro /sys "$root/sys"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
mount --bind "$cache" "$root/root/.cache/kvlease"
exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \\
        DEBIAN_FRONTEND=noninteractive "$@"
"""

# Starts the packages' daemon, since nothing else starts it in there; later commands find it ready.
KVLEASED = """
kvleased --config /etc/kvlease/kvleased.conf >/tmp/kvleased.log 2>&1 &
trap "kill $!; wait" EXIT
for i in $(seq 600); do kvleasectl tenants list >/dev/null 2>&1 && break; sleep 0.1; done
"""


def cpu_seconds():
    """CPU time of all processes that were started here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def commands(page, section, *words):
    """Commands of a section, each of which must contain its word."""
    found = Guide(page).commands(section)
    if len(found) != len(words) or not all(word in command for word, command in zip(words, found)):
        sys.exit(f"fresh.py: {page}, {section} has {found}, where {words} were expected")
    return found


def written(name, text):
    """A command that writes the text to that file."""
    return f"cat >{name} <<'END'\n{text}END"


class Machine:
    """A Debian without anything installed, and the results of its steps."""

    def __init__(self, work, suite):
        self.suite, self.root, self.passed, self.failed = suite, work / suite, 0, 0
        self._log = work / "log"
        base = CACHE / f"debian-{suite}"
        if base.exists() and time.time() - base.stat().st_mtime > CACHE_DAYS * 86400:
            shutil.rmtree(base)
        if not base.exists():
            made = work / f"made-{suite}"
            debian.make(made, suite)
            CACHE.mkdir(parents=True, exist_ok=True)
            debian.run("cp", "-a", made, f"{base}.{os.getpid()}")
            os.utime(f"{base}.{os.getpid()}")
            debian.run("mv", "-T", f"{base}.{os.getpid()}", base)
        debian.run("cp", "-a", base, self.root)
        debian.configure(self.root)  # the machine may have changed since
        (self.root / "root/.cache/kvlease").mkdir(parents=True)
        debian.run("git", "clone", "--quiet", "--no-hardlinks", SOURCE, self.root / CLONE)

    def run(self, *commands):
        """Runs commands one by one in the clone, in one shell. Reports failures and continues. False: one failed."""
        script = "set -e\ncd ~/kvlease\n" + "\n".join(commands)
        kept = [f"{name}={value}" for name, value in os.environ.items() if PASSED_ON.fullmatch(name)]
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={self.root}/proc", "sh", "-ec",
                 ENTER, "-", self.root, CACHE, *kept, "chroot", self.root, "sh", "-c", script]
        title, started, used = commands[-1].strip().splitlines()[-1], time.monotonic(), cpu_seconds()
        print(f"   {self.suite}: {title}", flush=True)
        with open(self._log, "w+", errors="replace") as log:
            status = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode
            seconds = time.monotonic() - started
            print(f"   {self.suite}: {'ok' if status == 0 else f'FAILED: {status}'} after {seconds:.0f} s "
                  f"({cpu_seconds() - used:.0f} s of processors)", flush=True)
            if status != 0:
                log.seek(0)
                print("".join(log.readlines()[-TAIL:]), flush=True)
        self.passed, self.failed = self.passed + (status == 0), self.failed + (status != 0)
        return status == 0


def debian_12(machine):
    """README.md's "Try it"."""
    demo, suite = commands("README.md", "Try it", "packaging/demo.sh", "tests/run.sh")
    machine.run(demo)
    # Both commands build in one directory: the second compiles nothing again.
    machine.run(". packaging/package.sh", "meson configure build --buildtype=release $symbols >/dev/null",
                "ninja -C build build.ninja daemon/server/kvleased | tail -n 1 | grep 'no work to do'")
    machine.run("python3 tests/tools/check-packages.py . build")  # also: ld.so finds what meson installs
    if FULL:
        machine.run(f"{demo} --engine vllm")
        machine.run(suite)


def debian_13(machine):
    """Commands of docs/start: pip, packages, a tenant, workers in C and Python."""
    install = commands("docs/start/python.md", "Install", "install-deps.sh build", "-m venv", "venv/bin/pip install")
    socket, status = commands("docs/start/python.md", "Check the connection", "KVLEASE_SOCKET=", "-m kvlease")
    machine.run(*install)
    # Files that these commands make are ignored by git. The machine has no git.
    left = subprocess.run(["git", "-C", machine.root / CLONE, "status", "--porcelain"], check=True, capture_output=True)
    machine.run(f"test -z {shlex.quote(left.stdout.decode())}")
    machine.run("sh packaging/wheel.sh /tmp/wheel", "python3 -m venv /tmp/venv",
                "/tmp/venv/bin/pip install --no-index /tmp/wheel/*.whl", "/tmp/venv/bin/python -c 'import kvlease'")
    deps, deb, apt = commands("docs/start/host.md", "Build and install the packages", "install-deps.sh package", "deb.sh", "apt install")
    tenant = commands("docs/start/host.md", "Add a tenant", "groupadd", "tenants add prod", "tenants list")
    worker = commands("docs/start/c.md", "Build and run", "KVLEASE_SOCKET=", "cc ", "./hello", "./hello")
    static, run_static = commands("docs/start/c.md", "Link statically", "cc -static", "./hello-static")
    machine.run(deps, deb)
    machine.run(apt.replace("apt install", "apt-get install -y -q --no-install-recommends"))
    machine.run("dpkg-query -W '*-dbgsym' | grep . && exit 1 || :")
    machine.run(KVLEASED, *tenant, "cd /tmp", written("hello.c", Guide("docs/start/c.md").program("c")), *worker[:-1],
                f"{worker[-1]} | grep 'found page'", static, f"{run_static} | grep 'found page'",
                "setpriv --reuid=65534 --regid=prod --clear-groups /tmp/hello | grep 'found page'",
                "cd ~/kvlease", socket, f"{status.replace('python3', 'venv/bin/python')} | grep 'reachable  yes'")


def test():
    passed = failed = skipped = 0
    try:
        with debian.workspace("fresh") as work:
            debian.need("git", by="build")
            if shutil.disk_usage(work).free < DISK_BYTES:
                raise debian.Missing(f"{work} has less than {DISK_BYTES >> 30} GiB free: TMPDIR moves it")
            for suite, tried in {"bookworm": debian_12, "trixie": debian_13}.items():
                machine = Machine(work, suite)
                tried(machine)
                passed, failed = passed + machine.passed, failed + machine.failed
                shutil.rmtree(machine.root)
    except debian.Missing as e:
        print(f"skipped: {e}")
        skipped = 1
    COUNTS.write_text(f"{passed} {failed} {skipped}\n")


test()
