"""What tests use beside the systemd that boot.py has booted: units, kvleased's service, workers.

Every test is a function test_*(); run_tests() calls them in order and says what failed. All raise
AssertionError with a sentence.
"""
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import time
import traceback
import urllib.request

BUILD, SOURCE = pathlib.Path("/kvl/build"), pathlib.Path("/kvl/source")
UNITS = pathlib.Path("/etc/systemd/system")
CONFIG = pathlib.Path("/etc/kvlease/kvleased.conf")
KVLEASED = "kvleased.service"
SOCKETS = ("kvleased.socket", "kvleased-admin.socket")
SOCKET = "/run/kvlease/sock"
WAIT_SECONDS = 30  # for operations of milliseconds, on a loaded machine; not tuned
FULL = os.environ.get("KVL_FULL") == "1"


def command(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: {done.returncode}: {done.stderr}{done.stdout}")
    return done


def follow(guide, section, *before):
    """Runs a section's commands in one shell; they print what it shows. Warnings of doctor aren't errors."""
    lines = [line + " || [ $? -eq 7 ]" if line == "kvleasectl doctor" else line for line in guide.commands(section)]
    guide.check(section, command("sh", "-ec", "\n".join([*before, *lines])).stdout)


def systemctl(*words, check=True):
    return command("systemctl", "--no-pager", *words, check=check)


def wait_for(what, ask, seconds=WAIT_SECONDS):
    """Waits until ask() returns something true; returns that."""
    end = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


# ---- units ---------------------------------------------------------------------------------------


def write_unit(name, text):
    (UNITS / name).write_text(text)
    systemctl("daemon-reload")


def set_in_unit(name, **settings):
    """Writes a drop-in for the section [Service]; without settings it is removed."""
    where = UNITS / f"{name}.d"
    where.mkdir(exist_ok=True)
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    (where / "test.conf").write_text(f"[Service]\n{lines}" if lines else "")
    systemctl("daemon-reload")


def show(unit, name):
    return systemctl("show", "-P", name, unit).stdout.strip()


def n_kept(unit=KVLEASED):
    return int(show(unit, "NFileDescriptorStore"))


def main_pid(unit=KVLEASED):
    return int(show(unit, "MainPID"))


def wait_restarted(unit, old_pid):
    """Waits until another process is ready in its place; returns its pid."""
    wait_for(f"{unit} runs again in another process than {old_pid}",
             lambda: main_pid(unit) not in (0, old_pid) and show(unit, "ActiveState") == "active")
    return main_pid(unit)


def cursor():
    """End of the journal, to read from there on."""
    command("journalctl", "--sync")
    said = command("journalctl", "-n", "0", "--show-cursor", "-q").stdout
    return said.rsplit(": ", 1)[1].strip()


def journal(unit, since):
    """Messages of the unit since then; None: of all units. If a process ends right after a
    message, the journal may not know its unit any more."""
    command("journalctl", "--sync")
    return command("journalctl", "-q", "--no-pager", "-o", "cat", f"--after-cursor={since}",
                   *(["-u", unit] if unit else [])).stdout


def wait_journal(unit, since, pattern):
    return wait_for(f"{pattern!r} in the journal of {unit}",
                    lambda: re.search(pattern, journal(unit, since)))


# ---- kvleased ------------------------------------------------------------------------------------


def write_config(more="", name=CONFIG.name):
    CONFIG.parent.mkdir(exist_ok=True)
    (CONFIG.parent / name).write_text("[daemon]\ndevices = host\n[device host]\nmemory = 256MiB\nextent = 2MiB\n"
                      "[tenant a]\nlimit = 128MiB\nuids = 0\n" + more)


def install_kvleased():
    """Installs the units, with the built programs where they expect them."""
    for unit in (BUILD / "packaging/systemd").glob("kvleased*"):
        (UNITS / unit.name).write_text(unit.read_text())
    command("systemd-sysusers", str(SOURCE / "packaging/systemd/kvlease.sysusers"))
    program = re.search(r"^ExecStart=(\S+)", (UNITS / KVLEASED).read_text(), re.MULTILINE)[1]
    pathlib.Path(program).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(program).unlink(missing_ok=True)
    pathlib.Path(program).symlink_to(BUILD / "daemon/server/kvleased")
    write_config()
    systemctl("daemon-reload")


def ctl(*words, check=True):
    return command(str(BUILD / "client/ctl/kvleasectl"), *words, check=check)


def status():
    return json.loads(ctl("status", "--json").stdout)


def start_kvleased():
    """Starts the installed service and its sockets with the tests' configuration; returns its pid.
    All earlier state is removed."""
    stop_kvleased()
    write_config()
    set_in_unit(KVLEASED)
    systemctl("start", *SOCKETS, KVLEASED)
    return main_pid()


def stop_kvleased():
    systemctl("stop", *SOCKETS, KVLEASED)
    systemctl("reset-failed")


def metrics():
    """kvlease-exporter's metrics; "" if it doesn't answer."""
    try:
        with urllib.request.urlopen("http://127.0.0.1:9758/metrics", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


class Worker:
    """tests/integration/worker.c, driven by lines."""

    def __init__(self, socket="/run/kvlease/t/a/sock", group=None, through=()):
        """group: the only group of a worker of another user (nobody). through: words that run it elsewhere."""
        other = {} if group is None else {"user": 65534, "group": group, "extra_groups": []}
        self.process = subprocess.Popen([*through, BUILD / "tests/integration/kvl-worker"], bufsize=0,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, **other)
        self.tell(f"connect {socket}")
        self.tell("open ns 1")

    def ask(self, line):
        """(code, the rest of the answer)"""
        self.process.stdin.write(line.encode() + b"\n")
        said = b""
        while not said.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], WAIT_SECONDS)
            more = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not more:
                raise AssertionError(f"the worker doesn't answer '{line}'")
            said += more
        code, _, rest = said.decode().strip().partition(" ")
        return int(code), rest

    def tell(self, line):
        code, rest = self.ask(line)
        assert code == 0, f"'{line}': {code} {rest}"
        return rest

    def publish_text(self, chain, n):
        """n pages filled with a pattern; returns their numbers."""
        pages = [int(p) for p in self.tell(f"lease {n}").split()]
        for i, page in enumerate(pages):
            self.tell(f"fill {page} {1000 * chain + i}")
        self.tell(f"publish {chain}:0-{n - 1} - {' '.join(map(str, pages))}")
        return pages

    def find(self, chain, n):
        """Looks pages up and pins them; returns (number found, whether their bytes are right)."""
        code, rest = self.ask(f"lookup {chain}:0-{n - 1}")
        if code != 0:
            return 0, True
        pages = rest.split()
        return len(pages), self.is_intact(chain, pages)

    def is_intact(self, chain, pages):
        return all(self.ask(f"verify {page} {1000 * chain + i}")[0] == 0
                   for i, page in enumerate(pages))

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(WAIT_SECONDS) == 0


# ---- running -------------------------------------------------------------------------------------


def explain(unit_names):
    for unit in unit_names:
        print(systemctl("status", "-n", "40", unit, check=False).stdout)


def run_tests(names, units):
    """Runs all functions test_* among names; exits with 1 if one failed."""
    failed = 0
    wanted = sys.argv[1:]
    for name, test in list(names.items()):
        if not name.startswith("test_") or (wanted and name not in wanted):
            continue
        start = time.monotonic()
        try:
            test()
            print(f"ok {name} ({time.monotonic() - start:.1f} s)", flush=True)
        except Exception:  # any failure: the others run all the same
            failed += 1
            print(f"FAILED {name}", flush=True)
            traceback.print_exc(file=sys.stdout)
            explain(units)
    sys.exit(1 if failed else 0)
