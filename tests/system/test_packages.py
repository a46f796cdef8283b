#!/usr/bin/env python3
"""The Debian packages, from their installation to their purge, as a new administrator meets them: by
the commands of docs/start, beside a real systemd. The packages lie in /kvl/packages. The tests build on
each other, in their order.
"""
import grp
import os
import pathlib
import re
import shutil
import sys

sys.path.insert(0, "/kvl/source/tests/system")
import machine
from guide import Guide
from machine import KVLEASED, SOCKETS

HOST, C, PYTHON = (Guide(f"docs/start/{page}.md") for page in ("host", "c", "python"))
UPGRADE = Guide("docs/operate/upgrade.md")
ROUTING = Guide("docs/operate/routing.md")
OTHER_HOSTS = Guide("docs/operate/other-hosts.md")
EXPORTER, EVENTS = "kvlease-exporter.service", "kvlease-events@NAME.service"
EXCHANGE, EXCHANGE_SOCKET = "kvlease-exchange.service", "kvlease-exchange.socket"
EVENTS_OPTIONS = pathlib.Path("/etc/default/kvlease-events-NAME")

# Files that other packages change when any package is installed or removed.
NOT_OURS = re.compile("^/(proc|sys|dev|tmp|kvl|run/(systemd|log|dpkg|lock)|root|etc/ld.so.cache"
                      "|etc/(group|gshadow|passwd|shadow)-?$|etc/.pwd.lock|var/(cache|log|tmp)"
                      "|var/lib/(dpkg|apt|systemd|ucf|man-db)|usr/share/info/dir)")


DIST_PACKAGES = "/usr/lib/python3/dist-packages/kvlease"


def shell(line):
    return machine.command("sh", "-ec", line).stdout


def apt(line, *options):
    """The page's command without its questions."""
    words = ("-y", "-q", "--no-install-recommends", "-o", "Dpkg::Options::=--force-unsafe-io", *options)
    return re.sub(r"^apt (\w+)", rf"apt-get \1 {' '.join(words)}", line)


def files():
    found = set()
    for top, directories, names in os.walk("/"):
        directories[:] = [d for d in directories if not NOT_OURS.match(os.path.join(top, d))
                          and not os.path.ismount(os.path.join(top, d))]
        found.update(os.path.join(top, n) for n in directories + names)
    return {path for path in found if not NOT_OURS.match(path)}


def installed():
    return set(shell("dpkg-query -W -f '${Package}\\n'").split())


def install(pattern):
    packages = map(str, pathlib.Path("/kvl/packages").glob(pattern))
    done = machine.command("dpkg", "--force-unsafe-io", "-i", *packages)
    return done.stdout + done.stderr


def hello(*words):
    """Runs the example of docs/start/c.md, as a worker of the tenant that docs/start/host.md adds."""
    return machine.command(*words, "env", "KVLEASE_SOCKET=/run/kvlease/t/prod/sock",
                           "/tmp/hello").stdout


def test_install():
    """Installs packages, adds a tenant with a guarantee and a group, and runs a worker."""
    _, build, install = HOST.commands("Build and install the packages")
    shutil.copytree("/kvl/packages", build.split()[-1])
    shell(apt(install))
    assert not [name for name in installed() if name.endswith("-dbgsym")]
    assert machine.show(KVLEASED, "ActiveState") == "active"
    for unit in (KVLEASED, *SOCKETS):
        assert machine.systemctl("is-enabled", unit).stdout.strip() == "enabled", unit
    machine.follow(HOST, "Add a tenant")
    machine.follow(HOST, "Check the daemon")
    pathlib.Path("/tmp/hello.c").write_text(C.program("c"))
    machine.follow(C, "Build and run", "cd /tmp")
    regions = machine.command("kvleasectl", "regions").stdout
    assert "prod" in regions, regions
    assert "found page" in hello()


def test_running():
    admin = os.stat("/run/kvlease/admin.sock")
    assert (admin.st_mode & 0o777, admin.st_gid) == (0o660, grp.getgrnam("kvlease-admin").gr_gid)
    monitor = os.stat("/run/kvlease/monitor.sock")
    assert (monitor.st_mode & 0o777, monitor.st_gid) == (0o660, grp.getgrnam("kvlease-monitor").gr_gid)
    machine.command("kvleasectl", "check")
    explained = machine.command("journalctl", "-x", "-q", "--no-pager", "-u", KVLEASED).stdout
    assert "Its sockets are in /run/kvlease." in explained, explained
    assert pathlib.Path("/usr/share/man/man8/kvleased.8.gz").exists()


def test_worker_of_another_user():
    assert "found page" in hello("setpriv", "--reuid=65534", "--regid=prod", "--clear-groups")


def test_static():
    """libkvlease-dev depends on everything that libkvlease.a calls."""
    shell("\n".join(["cd /tmp", *C.commands("Link statically")[:1]]))
    said = machine.command("env", "KVLEASE_SOCKET=/run/kvlease/t/prod/sock", "/tmp/hello-static").stdout
    assert "found page" in said, said


def test_examples():
    """The example of libkvlease-dev is that of docs/start/c.md."""
    assert pathlib.Path("/usr/share/doc/libkvlease-dev/examples/hello.c").read_text() == C.program("c")
    assert pathlib.Path("/usr/share/doc/python3-kvlease/examples/hello.py").read_text() == PYTHON.program("python")


def test_documents():
    """Documents aren't compressed: links between them name files as they are."""
    documents = pathlib.Path("/usr/share/doc/kvleased")
    assert (documents / "README.md").read_text() == (machine.SOURCE / "README.md").read_text()
    for page in documents.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            assert "://" in link or (page.parent / link).exists(), f"{page}: {link}"


def python(*words, check=True):
    """Runs Debian's Python, as a worker of the tenant that docs/start/host.md adds."""
    return machine.command("env", "KVLEASE_SOCKET=/run/kvlease/t/prod/sock", "/usr/bin/python3", "-I",
                           *words, check=check)


def test_python():
    """python3-kvlease works in Debian's Python with its libkvlease0, byte-compiled."""
    where = "import kvlease; print(kvlease.__file__, kvlease.__version__)"
    said = python("-W", "error", "-c", where).stdout.split()
    assert said == [f"{DIST_PACKAGES}/__init__.py", shell("kvleased --version").split()[-1]], said
    needed = machine.command("ldd", f"{DIST_PACKAGES}/_kvlease.abi3.so").stdout
    assert re.search("libkvlease.so.0 => /(usr/)?lib/", needed), needed
    assert list(pathlib.Path(DIST_PACKAGES, "__pycache__").glob("__init__.*.pyc"))
    pathlib.Path("/tmp/hello.py").write_text(PYTHON.program("python"))
    machine.follow(PYTHON, "Check the connection")
    machine.follow(PYTHON, "Publish and find pages", "cd /tmp", PYTHON.commands("Check the connection")[0])


def test_exporter():
    """The exporter isn't started by itself; started, it runs as a user of its own."""
    assert machine.show(EXPORTER, "ActiveState") == "inactive"
    machine.systemctl("enable", "--now", EXPORTER)
    said = machine.wait_for("the exporter answers", machine.metrics)
    assert re.search("^kvlease_up 1$", said, re.MULTILINE), said
    assert os.stat(f"/proc/{machine.main_pid(EXPORTER)}").st_uid != 0


def test_events():
    """kvlease-events starts by the page's commands, reaches kvleased as a user of its own, and waits for a namespace.
    It stops with exit status 0."""
    EVENTS_OPTIONS.write_text(ROUTING.program("text").replace("10.0.0.7", "127.0.0.1"))
    start = ROUTING.inline("Set up", "systemctl enable")
    shell(start)
    log = ROUTING.inline("Set up", "journalctl")
    machine.wait_for("kvlease-events waits", lambda: "no namespace matches" in shell(log))
    assert os.stat(f"/proc/{machine.main_pid(EVENTS)}").st_uid != 0
    machine.systemctl("disable", "--now", EVENTS)
    assert machine.show(EVENTS, "Result") == "success"
    shell(start)


def test_exchange():
    """kvleased without network reaches kvlease-exchange by its socket, which starts it as a user of its own, with the
    password that only root reads. An upgrade restarts it, and leaves its socket open."""
    assert machine.systemctl("is-enabled", EXCHANGE_SOCKET).stdout.strip() == "enabled"
    assert machine.show(EXCHANGE, "ActiveState") == "inactive"
    shell("mount --make-rshared /")  # as on a machine of its own: credentials are mounted outside of the service
    password = pathlib.Path("/etc/kvlease/redis")
    password.touch(0o600)
    password.write_text("secret\n")
    drop_in = machine.UNITS / f"{EXCHANGE}.d/password.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(OTHER_HOSTS.program("text"))
    config = pathlib.Path("/etc/kvlease/kvleased.conf")
    before = config.read_text()
    config.write_text(before + "\n[remote rack]\naddresses = 127.0.0.1:1\n"
                      "secret_file = /run/credentials/kvlease-exchange.service/redis\n")
    machine.systemctl("daemon-reload")
    machine.command("kvleasectl", "restart")

    def refused():
        return "Connection refused" in machine.command("kvleasectl", "remote").stdout
    machine.wait_for("kvlease-exchange asks the server", refused)
    pid, socket = machine.main_pid(EXCHANGE), os.stat("/run/kvlease-exchange/exchange.sock")
    assert os.stat(f"/proc/{pid}").st_uid != 0
    assert (socket.st_mode & 0o777, socket.st_uid) == (0o600, 0)
    shell("systemctl restart kvlease-exchange")
    pid = machine.wait_restarted(EXCHANGE, pid)
    install("kvlease-exchange_*.deb")
    machine.wait_restarted(EXCHANGE, pid)
    assert os.stat("/run/kvlease-exchange/exchange.sock").st_ino == socket.st_ino
    machine.wait_for("kvlease-exchange asks the server again", refused)
    machine.command("dpkg", "-r", "kvlease-exchange")
    assert machine.show(EXCHANGE, "ActiveState") == "inactive"
    machine.wait_for("status names it", lambda: "enable --now kvlease-exchange.socket" in
                     " ".join(machine.command("kvleasectl", "status", check=False).stdout.split()))
    install("kvlease-exchange_*.deb")
    machine.wait_for("kvlease-exchange asks the server after its installation", refused)
    config.write_text(before)
    shutil.rmtree(drop_in.parent)
    password.unlink()
    machine.systemctl("daemon-reload")
    machine.command("kvleasectl", "restart")


def test_upgrade():
    """Cached pages stay, sockets stay open, the exporter runs again."""
    pid, socket = machine.main_pid(), os.stat("/run/kvlease/admin.sock").st_ino
    exporter_pid = machine.main_pid(EXPORTER)
    config = pathlib.Path("/etc/kvlease/kvleased.conf")
    config.write_text("[daemon]\nmax_clients = 77\n")
    upgrade, *ask = UPGRADE.commands("Upgrade")
    shell("\n".join(["cd /kvl/packages", *ask]))
    # The packages have the same version again.
    shell(f"cd /kvl/packages\n{apt(upgrade, '--reinstall')}")
    assert machine.main_pid() not in (0, pid)
    assert os.stat("/run/kvlease/admin.sock").st_ino == socket
    machine.wait_restarted(EXPORTER, exporter_pid)
    assert "found page" in hello()
    assert "max_clients = 77" in config.read_text()
    assert "reachable  yes" in python("-m", "kvlease").stdout
    machine.command("kvleasectl", "check")


def test_upgrade_of_events():
    """The instance runs again after an upgrade. A removal ends it, and it stays enabled."""
    pid = machine.main_pid(EVENTS)
    install("kvlease-events_*.deb")
    machine.wait_restarted(EVENTS, pid)
    machine.command("dpkg", "-r", "kvlease-events")
    assert machine.show(EVENTS, "ActiveState") == "inactive"
    install("kvlease-events_*.deb")
    assert machine.systemctl("is-enabled", EVENTS).stdout.strip() == "enabled"
    machine.systemctl("start", EVENTS)


def test_upgrade_that_would_lose():
    """The daemon keeps running if the next one wouldn't recover its state."""
    config = pathlib.Path("/etc/kvlease/kvleased.conf")
    before, pid = config.read_text(), machine.main_pid()
    config.write_text(before + "keep_state = off\n")
    said = install("*.deb")
    assert machine.main_pid() == pid
    assert "keep_state would be off" in said and "restart --force" in said, said
    config.write_text(before)


def test_remove():
    """The configuration and tenants' settings stay; a new installation continues with them."""
    machine.command("dpkg", "-r", "kvleased")
    assert machine.show(KVLEASED, "ActiveState") == "inactive"
    assert not pathlib.Path("/usr/sbin/kvleased").exists()
    assert pathlib.Path("/etc/kvlease/kvleased.conf").exists()
    missed = python("-m", "kvlease", check=False)
    assert missed.returncode == 1 and "systemctl start kvleased" in missed.stderr, missed
    install("kvleased_*.deb")
    assert machine.show(KVLEASED, "ActiveState") == "active"
    assert "publish: " in hello()


def test_site():
    """The pages of kvlease-doc lead to files that are there, scripts of the search too, and to no other machine."""
    top = pathlib.Path("/usr/share/doc/kvlease-doc/html")
    pages = sorted(top.rglob("*.html"))
    assert len(pages) > 70 and (top / "searchindex.js").is_file()
    for page in pages:
        for kind, link in re.findall(r'(href|src)="([^"#?]+)', page.read_text()):
            assert "://" in link and kind == "href" or (page.parent / link).exists(), f"{page}: {link}"


def test_purge():
    """Nothing is left of the packages, nor of their dependencies."""
    names = installed() - BEFORE_PACKAGES
    table = re.findall(r"^\| (`.*?`) \|", (machine.SOURCE / "docs/start/host.md").read_text(), re.M)
    assert {name for row in table for name in re.findall("`(.*?)`", row)} == {n for n in names if "kvlease" in n}, names
    machine.systemctl("enable", "kvleased@NAME.service")
    shell(apt(UPGRADE.inline("kvlease", "apt purge")))
    machine.command("dpkg", "-P", *(names & installed()))
    EVENTS_OPTIONS.unlink()
    # systemd's own directory is a mount here, so files() leaves it out.
    left = sorted((files() - BEFORE_FILES) | {str(path) for path in machine.UNITS.rglob("kvlease*")})
    assert not left, "\n".join(left)
    for group in ("kvlease-admin", "kvlease-monitor"):
        assert not machine.command("getent", "group", group, check=False).stdout
    assert not machine.command("sh", "-c", "dpkg -l | grep kvlease", check=False).stdout
    units = machine.systemctl("list-units", "--all", "--full", "kvlease*").stdout
    assert "0 loaded units" in units, units


if __name__ == "__main__":
    # It lists all manual pages whenever a package brings one, for a minute on a large machine.
    pathlib.Path("/var/lib/man-db/auto-update").unlink(missing_ok=True)
    BEFORE_PACKAGES, BEFORE_FILES = installed(), files()
    machine.run_tests(globals(), [KVLEASED])
