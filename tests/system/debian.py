"""Fresh Debians in directories, for tests of packages: made by debootstrap from this machine's mirror of Debian,
entered with mounts and processes of their own, and gone with the test.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

SKIP = 77
TAIL = 4000  # characters of a failed program's output


class Missing(Exception):
    """Something that a test needs and can't have here."""


class Failed(Exception):
    """A failure with everything there."""


@contextlib.contextmanager
def workspace(name):
    """Makes a directory that is removed afterwards, however the test ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix=f"kvl-{name}-", ignore_cleanup_errors=True) as path:
        os.chmod(path, 0o755)  # it contains roots of containers
        yield pathlib.Path(path)


def need(*tools, by="package"):
    """by: the list of install-deps.sh that has the tools."""
    for tool in tools:
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            raise Missing(f"{tool} isn't installed (sh packaging/install-deps.sh {by})")


def run(*command, trouble=Failed, **more):
    """Returns stdout and stderr; another exit status than 0 raises `trouble` with the end of them."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          text=True, errors="replace", check=False, **more)
    if done.returncode != 0:
        raise trouble(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout[-TAIL:]}")
    return done.stdout


def inside(root, source, *command):
    """Words that run a command in the root, with the source as /source."""
    enter = 'mkdir -p "$1/source"; mount --bind "$2" "$1/source"; ' \
            'mount -o remount,bind,ro "$1/source"; root=$1; shift 2; exec chroot "$root" "$@"'
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc", "sh", "-ec", enter,
            "-", root, source, *command]


def mirror():
    """URL from which this machine takes Debian's main packages, as apt reports it; none if there is none."""
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL) $(COMPONENT)"],
                          stdout=subprocess.PIPE, text=True, check=False)
    found = [line.split()[0] for line in done.stdout.splitlines() if line.split()[1:] == ["Debian", "Debian", "main"]]
    return found[:1]


def configure(root):
    """Copies this machine's access to registries: proxies, certificates, pip's index."""
    proxies = [line for line in run("apt-config", "dump").splitlines() if re.match(r"Acquire::https?::Proxy ", line)]
    (root / "etc/apt/apt.conf.d/90machine").write_text("".join(f"{line}\n" for line in proxies))
    ours, own = pathlib.Path("/usr/local/share/ca-certificates"), root / "usr/local/share/ca-certificates"
    if ours.is_dir():
        shutil.copytree(ours, own, dirs_exist_ok=True)  # ca-certificates reads them when it is installed
    home = pathlib.Path.home()
    for conf in home / ".config/pip/pip.conf", home / ".pip/pip.conf", pathlib.Path("/etc/pip.conf"):
        if conf.exists():
            shutil.copy(conf, root / "etc/pip.conf")
            break


def make(root, suite, *packages):
    """Makes a minimal Debian with these packages. Raises Missing if that is impossible."""
    need("debootstrap", "unshare", "chroot")
    if os.geteuid() != 0:
        raise Missing("a fresh Debian can't be made without root")
    include = [f"--include={','.join(packages)}"] if packages else []
    # In namespaces of its own: its mounts end with it, and workspace() never removes this machine's.
    run("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "debootstrap", "--variant=minbase",
        *include, suite, root, *mirror(), trouble=Missing)
    configure(root)
    return root


def build(source, folder):
    """Builds the source's packages on this machine into the folder; they are clean for lintian."""
    need("dpkg-buildpackage", "dh", "lintian")
    run("sh", source / "packaging/deb.sh", "--lintian", folder)


def end(test):
    """Runs the test and ends the process with the status that meson expects."""
    try:
        sys.exit(test())
    except Missing as e:
        print(f"skipped: {e}")
        sys.exit(SKIP)
    except Failed as e:
        sys.exit(str(e))
