#!/usr/bin/env python3
"""What `meson install` installed (/kvl/tree, to be laid over the root), put to work as README.md says."""
import os
import re
import sys

sys.path.insert(0, "/kvl/source/tests/system")
import machine
from machine import KVLEASED


def hello():
    return machine.command("env", "KVLEASE_SOCKET=/run/kvlease/t/prod/sock", "/tmp/hello").stdout


def test_install():
    # /lib is a link.
    machine.command("sh", "-ec", "tar -C /kvl/tree -c . | tar -C / --keep-directory-symlink -x")
    machine.systemctl("daemon-reload")
    install = (machine.SOURCE / "README.md").read_text().split("## Install")[1].split("\n## ")[0]
    commands = re.findall("`([^`]*)`", install.split("`meson install`")[1].replace("\n", " "))
    assert commands[0] == "systemd-sysusers", commands
    for line in commands:
        machine.command("sh", "-ec", line)
    assert machine.show(KVLEASED, "ActiveState") == "active"
    program = re.search(r"path=(\S+)/sbin/kvleased", machine.show(KVLEASED, "ExecStart"))
    machine.command(f"{program[1]}/bin/kvleasectl", "tenants", "add", "prod", "class=pinned",
                    "reserve=64MiB")
    machine.command("cc", "-o", "/tmp/hello", str(machine.SOURCE / "client/examples/hello.c"),
                    f"-I{program[1]}/include", "-lkvlease")
    assert "publish: " in hello()
    assert "found page" in hello()
    machine.systemctl("restart", KVLEASED)
    assert "found page" in hello()


def test_exporter():
    """Serves as a user of its own, from the monitor socket that only a group may use."""
    unit = "kvlease-exporter.service"
    machine.systemctl("start", unit)
    said = machine.wait_for("the exporter answers", machine.metrics)
    assert re.search("^kvlease_up 1$", said, re.MULTILINE), said
    assert os.stat(f"/proc/{machine.main_pid(unit)}").st_uid != 0


if __name__ == "__main__":
    machine.run_tests(globals(), [KVLEASED])
