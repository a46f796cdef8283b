#!/usr/bin/env python3
"""An installation by `meson install` (/kvl/tree, to be laid over the root), used with the commands of docs/start."""
import os
import pathlib
import re
import sys

sys.path.insert(0, "/kvl/source/tests/system")
import machine
from guide import Guide, listed
from machine import KVLEASED


HOST, C, CONFIGURE, TENANTS = (Guide(f"docs/{page}.md") for page in ("start/host", "start/c", "operate/configure", "operate/tenants"))
# By it the output of docs/operate/configure.md has its lines.
CONFIGURATION = "# host memory\n\n[daemon]\ndevices = host\n[device host]\nmemory = 2GiB\n"


def test_install():
    # /lib is a link.
    machine.command("sh", "-ec", "tar -C /kvl/tree -c . | tar -C / --keep-directory-symlink -x")
    machine.systemctl("daemon-reload")
    commands = HOST.commands("Without packages")
    assert commands[0] == "systemd-sysusers", commands
    for line in commands:
        machine.command("sh", "-ec", line)
    assert machine.show(KVLEASED, "ActiveState") == "active"
    said = machine.command("kvleasectl", "status").stdout  # as README.md and host.md say
    assert said.startswith("not well: 1 warning\nwarning  there is no tenant"), said


def test_worker():
    """Adds the first tenant, and compiles a program against the installation."""
    machine.follow(HOST, "Add a tenant")
    machine.follow(HOST, "Check the daemon")
    pathlib.Path("/tmp/hello.c").write_text(C.program("c"))
    machine.follow(C, "Build and run", "cd /tmp")
    machine.systemctl("restart", KVLEASED)
    assert "found page" in machine.command("env", "KVLEASE_SOCKET=/run/kvlease/t/prod/sock", "/tmp/hello").stdout


def test_configuration():
    machine.CONFIG.parent.mkdir(exist_ok=True)
    machine.CONFIG.write_text(CONFIGURATION)
    machine.systemctl("restart", KVLEASED)
    machine.follow(CONFIGURE, "Apply a change")
    machine.follow(TENANTS, "Add and change a tenant")


def test_exporter():
    """The exporter runs as a user of its own, and reads the monitor socket, which only a group may use."""
    unit = "kvlease-exporter.service"
    machine.systemctl("start", unit)
    said = machine.wait_for("the exporter answers", machine.metrics)
    assert re.search("^kvlease_up 1$", said, re.MULTILINE), said
    machine.follow(Guide("docs/operate/watch.md"), "Metrics")
    assert os.stat(f"/proc/{machine.main_pid(unit)}").st_uid != 0


def test_other_commands():
    """Commands of docs/operate that stand in sentences. The last one stops kvleased."""
    for line in listed("tests/system/test_install.py"):
        machine.command("sh", "-ec", line.replace("NAME", "nobody"))
    assert machine.show(KVLEASED, "ActiveState") == "inactive"


if __name__ == "__main__":
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:" + os.environ["PATH"]  # PATH of administrators
    machine.run_tests(globals(), [KVLEASED])
