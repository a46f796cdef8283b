#!/usr/bin/env python3
"""Boots a real systemd in private namespaces and runs one program beside it.

    boot.py [--timeout SECONDS] [--root DIRECTORY] [--packages] [--bind NAME=DIRECTORY]...
            PROGRAM [ARGUMENT]...

systemd is PID 1 of namespaces of its own (mounts, processes, network, IPC, host name, cgroups). Its
root is an overlay: the machine's below, which nothing writes, a tmpfs above; /run, /tmp, /var and
/dev are its own. --root: a Debian in DIRECTORY below instead of the machine's. It runs the journal and nothing else of the machine's units. Each --bind makes a
directory visible, read-only, as /kvl/NAME. --packages: for programs that install packages; the
machine's /var is below the overlay like the rest, and systemd finds the units that are installed.
PROGRAM is looked up in there; what it prints, and its
exit status, are boot.py's. Whatever happens, all processes in there end with boot.py, and no mount,
cgroup or file is left.

Exit status: PROGRAM's; 77 where such namespaces aren't permitted, with a sentence that names what
is missing; 99 where systemd doesn't start, or at the timeout.
"""
import argparse
import contextlib
import ctypes
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import time

SKIP, FAILED = 77, 99
BOOT_SECONDS = 60  # usually 1; not tuned

# <sched.h>, <linux/prctl.h>
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x00020000, 0x02000000, 0x04000000
CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG = 1

SYSTEMD = "/usr/lib/systemd/systemd"
UNITS = "/usr/lib/systemd/system"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# Directories hidden by an empty tmpfs.
OWN = ["dev", "run", "tmp", "var", "etc/systemd", "kvl"]
DEVICES = ["null", "zero", "full", "random", "urandom", "tty"]
# The only installed units that systemd finds.
TARGETS = ["basic", "sysinit", "sockets", "paths", "slices", "timers", "local-fs", "swap",
           "shutdown", "umount", "final"]
JOURNAL = ["systemd-journald.service", "systemd-journald.socket",
           "systemd-journald-dev-log.socket"]
WANTED = [f"{t}.target" for t in TARGETS] + JOURNAL
# Capabilities that would let a test change the machine: modules and the clock.
DROPPED = "-sys_module,-sys_time,-sys_rawio,-syslog"

libc = ctypes.CDLL(None, use_errno=True)


class Missing(Exception):
    """Something that this machine doesn't permit."""


class Broken(Exception):
    """A failure on a machine that permits everything."""


def call(what, result):
    if result != 0:
        raise Missing(f"{what}: {os.strerror(ctypes.get_errno())}")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing((done.stderr.strip() or " ".join(command)).splitlines()[0])


def mount_tmpfs(where, mode="755"):
    where.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", f"mode={mode}", "tmpfs", str(where))


def bind(what, where):
    run("mount", "--bind", str(what), str(where))


def end_with_parent():
    call("prctl", libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


# ---- the root of systemd -------------------------------------------------------------------------


def make_devices(dev):
    for name in DEVICES:
        (dev / name).touch()
        bind(f"/dev/{name}", dev / name)
    (dev / "console").touch()
    bind("/dev/null", dev / "console")
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"),
                         ("stderr", "fd/2"), ("ptmx", "pts/ptmx")):
        (dev / name).symlink_to(target)
    mount_tmpfs(dev / "shm", "1777")
    (dev / "pts").mkdir()
    run("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=666", "devpts", str(dev / "pts"))


def prepare_packages(root):
    """Lets installed units run, but none of the machine's."""
    directory = root / UNITS[1:]
    ours = {name: (directory / name).read_text() for name in WANTED}
    mount_tmpfs(directory)
    for name, text in ours.items():
        (directory / name).write_text(text)
    # In many containers this file forbids services to start.
    (root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)


def make_units(etc):
    units = etc / "systemd/system"
    units.mkdir()
    for name in WANTED:
        (units / name).symlink_to(f"{UNITS}/{name}")
    (units / "default.target").symlink_to("basic.target")
    wants = units / "sysinit.target.wants"
    wants.mkdir()
    for name in JOURNAL:
        (wants / name).symlink_to(f"../{name}")
    (etc / "systemd/journald.conf").write_text(
        "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\nRateLimitIntervalSec=0\n")
    (etc / "systemd/system.conf").write_text("[Manager]\nLogTarget=journal\n")
    (etc / "fstab").write_text("")
    (etc / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")


def make_root(base, lower, binds, packages):
    """base: an empty directory of our own. Returns the path of the root."""
    root = base / "root"
    for name in ("upper", "work", "root"):
        (base / name).mkdir()
    try:
        run("mount", "-t", "overlay", "overlay", "-o",
            f"lowerdir={lower},upperdir={base}/upper,workdir={base}/work", str(root))
    except Missing as e:
        raise Missing(f"an overlay over {lower} can't be mounted ({e})") from None
    for name in OWN:
        if name != "var" or not packages:
            mount_tmpfs(root / name, "1777" if name == "tmp" else "755")
    if packages:
        prepare_packages(root)
    make_devices(root / "dev")
    make_units(root / "etc")
    for name, directory in binds:
        where = root / "kvl" / name
        where.mkdir()
        bind(directory, where)
        run("mount", "-o", "remount,bind,ro", str(where))
    (root / "kvl/.old").mkdir()
    return root


# ---- cgroups -------------------------------------------------------------------------------------


def remove_cgroup(top):
    """Removes the group and those below. They are in use until the last process in them has ended."""
    for _ in range(100):
        below = sorted((p for p in top.rglob("*") if p.is_dir()), reverse=True)
        try:
            for group in [*below, top]:
                group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as e:
            trouble = e
            time.sleep(0.05)
    print(f"boot.py: a cgroup is left: {trouble}", file=sys.stderr)


def make_cgroup(mounted):
    """Makes a group below our own, in the unified hierarchy mounted there."""
    mounted.mkdir()
    try:
        run("mount", "-t", "cgroup2", "cgroup2", str(mounted))
        own = [line[3:].strip() for line in open("/proc/self/cgroup") if line.startswith("0::/")]
        # A process that came from outside a cgroup namespace is in none of its groups.
        parent = mounted if own[0].startswith("/..") else mounted / own[0].lstrip("/")
        # Groups left by a boot.py that was killed.
        for left in parent.glob("kvlease-test-*"):
            if not os.path.exists("/proc/" + left.name.rsplit("-", 1)[1]):
                remove_cgroup(left)
        group = parent / f"kvlease-test-{os.getpid()}"
        group.mkdir()
    except (Missing, OSError, IndexError) as e:
        raise Missing(f"no cgroup of the unified hierarchy (cgroup2) can be made ({e})") from None
    return group


# ---- PID 1 ---------------------------------------------------------------------------------------


def become_init(root, unit_path):
    """Becomes PID 1 of the new namespaces. Doesn't return."""
    end_with_parent()
    os.chdir(root)
    run("mount", "-t", "proc", "proc", "proc")
    # Files of the machine stay as they are; those of the network namespace are private.
    bind("proc/sys/net", "proc/sys/net")
    bind("proc/sys", "proc/sys")
    bind("proc/sys/net", "proc/sys/net")
    run("mount", "-o", "remount,bind,ro", "proc/sys")
    run("mount", "-t", "sysfs", "-o", "ro", "sysfs", "sys")
    run("mount", "-t", "cgroup2", "cgroup2", "sys/fs/cgroup")
    run("pivot_root", ".", "kvl/.old")
    os.chroot(".")
    os.chdir("/")
    run("umount", "-l", "/kvl/.old")
    os.rmdir("/kvl/.old")
    os.execve("/usr/bin/setpriv", [
        "setpriv", f"--bounding-set={DROPPED}", f"--inh-caps={DROPPED}", SYSTEMD, "--system",
        "--show-status=false"
    ], {
        "container": "kvlease-test",
        "PATH": PATH,
        "SYSTEMD_UNIT_PATH": unit_path,
        "SYSTEMD_GENERATOR_PATH": "/nowhere",
        "SYSTEMD_ENVIRONMENT_GENERATOR_PATH": "/nowhere",
    })


def fork_init(root, group, unit_path, report):
    """Forks init from a process between, which stays outside the new process namespace and reports init's pid."""
    end_with_parent()
    (group / "cgroup.procs").write_text("0")
    call("namespaces of its own for systemd aren't permitted (unshare)", libc.unshare(
        CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP))
    pid = os.fork()
    if pid == 0:
        try:
            become_init(root, unit_path)
        except (Missing, OSError) as e:
            os.write(report, str(e).encode())
        os._exit(1)
    os.write(report, f"{pid} ".encode())
    os.close(report)
    os.waitpid(pid, 0)


def start(root, group, unit_path):
    """Starts systemd. Returns (pid of the process between, pid of systemd, its pidfd)."""
    ours, theirs = os.pipe()
    between = os.fork()
    if between == 0:
        os.close(ours)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            fork_init(root, group, unit_path, theirs)
        except (Missing, OSError) as e:
            os.write(theirs, f"0 {e}".encode())
        os._exit(0)
    os.close(theirs)
    said = b""
    while more := os.read(ours, 4096):  # until exec
        said += more
    os.close(ours)
    pid, _, trouble = said.decode().partition(" ")
    if pid == "0":
        raise Missing(trouble)
    if trouble or not pid:
        raise Broken(f"its root can't be set up: {trouble}")
    # A group that has processes of its own can't give controllers to those below.
    (group.parent / "cgroup.procs").write_text(str(between))
    return between, int(pid), os.pidfd_open(int(pid))


def inside(init, *command):
    return ["nsenter", "-t", str(init), "-m", "-u", "-i", "-n", "-p", "-C", "--", *command]


def wait_started(init, pidfd):
    state = ""
    deadline = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < deadline:
        done = subprocess.run(inside(init, "systemctl", "is-system-running"), capture_output=True,
                              text=True, check=False, stdin=subprocess.DEVNULL)
        state = done.stdout.strip()
        if state == "running":
            return
        if select.select([pidfd], [], [], 0.05)[0]:
            raise Broken("it ended at once")
    subprocess.run(inside(init, "systemctl", "--no-pager", "list-units", "--all"), check=False)
    raise Broken(f"not up within {BOOT_SECONDS} s, but '{state or done.stderr.strip()}'")


# ---- all of it -----------------------------------------------------------------------------------


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--timeout", type=float, default=120, help="seconds for PROGRAM")
    p.add_argument("--root", default="/", type=os.path.realpath, metavar="DIRECTORY")
    p.add_argument("--packages", action="store_true", help="PROGRAM installs packages")
    p.add_argument("--bind", action="append", default=[], metavar="NAME=DIRECTORY")
    p.add_argument("program")
    p.add_argument("arguments", nargs=argparse.REMAINDER)
    args = p.parse_args()
    args.bind = [tuple(b.split("=", 1)) for b in args.bind]
    return args


def check_tools():
    if os.geteuid() != 0:
        raise Missing("it needs root")
    if not os.access(SYSTEMD, os.X_OK):
        raise Missing(f"systemd isn't installed (there is no {SYSTEMD})")
    for tool in ("mount", "umount", "pivot_root", "setpriv", "nsenter", "systemctl"):
        if not shutil.which(tool):
            raise Missing(f"{tool} isn't installed")


def run_program(init, args):
    program = subprocess.Popen(inside(init, args.program, *args.arguments),
                               env={**os.environ, "PATH": PATH, "HOME": "/root"})
    try:
        return program.wait(args.timeout)
    except subprocess.TimeoutExpired:
        print(f"boot.py: {args.program} took longer than {args.timeout:g} s", file=sys.stderr)
        return FAILED


def boot(args):
    group = between = pidfd = None
    # In our own mount namespace: all mounts end with the last process in it.
    call("mount namespaces aren't permitted (unshare)", libc.unshare(CLONE_NEWNS))
    binds = [(name, os.path.realpath(directory)) for name, directory in args.bind]
    run("mount", "--make-rprivate", "/")
    base = pathlib.Path("/run")
    run("mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", str(base))
    root = make_root(base, args.root, binds, args.packages)
    try:
        group = make_cgroup(base / "cgroup")
        unit_path = "/etc/systemd/system" + (":" + UNITS if args.packages else "")
        between, init, pidfd = start(root, group, unit_path)
        wait_started(init, pidfd)
        return run_program(init, args)
    finally:
        if pidfd:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)  # and with all processes in its namespace
            os.waitpid(between, 0)
        if group:
            remove_cgroup(group)


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(FAILED))
    try:
        check_tools()
        sys.exit(boot(args))
    except Missing as e:
        print(f"skipped: a systemd of its own can't be booted here: {e}")
        sys.exit(SKIP)
    except Broken as e:
        print(f"boot.py: systemd doesn't start: {e}", file=sys.stderr)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
