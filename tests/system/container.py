#!/usr/bin/env python3
"""The image of packaging/kubernetes/Containerfile, run by podman like packaging/kubernetes/kvleased.yaml:
container.py SOURCE BUILD

The image is made from this source's Debian packages, its base by debootstrap, so that no registry is asked. Storage,
containers and mounts are the test's own. Two parts of the manifest are left out: hostPID, as podman has no containers
without a cgroup of their own there (workers run in the container), and capabilities that this machine hasn't, which
are named. Skipped (77) without podman, debootstrap, Debian's mirror, or the right to run containers.
"""
import contextlib
import json
import pathlib
import re
import socket
import subprocess
import sys
import urllib.request

import boot
import debian
import machine

SOURCE, BUILD = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
MANIFEST = (SOURCE / "packaging/kubernetes/kvleased.yaml").read_text()
CONTAINERFILE = SOURCE / "packaging/kubernetes/Containerfile"
GROUP = 2001  # of tenant team-a
MONITOR_GROUP = 975
CAPABILITIES = {"CHOWN": 0, "KILL": 5, "SYS_ADMIN": 21, "SYS_RESOURCE": 24}  # <linux/capability.h>
PR_CAPBSET_READ = 23  # <linux/prctl.h>
# Enough for the test, and less than podman's defaults, which not every machine can grant.
ULIMITS = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]
machine.BUILD = pathlib.Path("/build")  # of workers, in the container


def manifest(pattern):
    """Words of a flow sequence in the manifest."""
    return re.split(r", *", re.search(pattern, MANIFEST)[1].replace('"', ""))


class Podman:
    def __init__(self, work):
        self.words = ["podman", "--root", work / "storage", "--runroot", work / "run", "--tmpdir", work / "tmp",
                      "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
        # Like Kubernetes: no tmpfs in a read-only root.
        self.run_words = ["run", "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all",
                          "--cgroups", "disabled", *ULIMITS]

    def __call__(self, *words, trouble=debian.Failed, **more):
        return debian.run(*self.words, *words, trouble=trouble, **more).strip()

    def start(self, name, *words):
        """Starts a container that stays."""
        return self(*self.run_words, "--detach", "--name", name, *words)

    def remove(self):
        """Removes all containers, also after a failed test."""
        try:
            self("rm", "--all", "--force", "--time", "0")
        except debian.Failed as e:
            print(f"containers may be left: {e}")


def make_image(podman, work):
    """Returns podman's output."""
    packages = work / "packages"
    base = debian.make(work / "base", "bookworm", "ca-certificates")
    debian.run("tar", "-C", base, "-cf", work / "base.tar", ".")
    podman("import", work / "base.tar", "localhost/base")
    podman(*podman.run_words, "--rm", "--network", "none", "localhost/base", "true", trouble=debian.Missing)
    debian.build(SOURCE, packages)
    podman("build", "--isolation", "chroot", "--network", "host", "--build-arg", "BASE=localhost/base",
           "-f", CONTAINERFILE, "-t", "localhost/kvleased", packages)
    return json.loads(podman("image", "inspect", "localhost/kvleased"))[0]


def make_folders(work):
    """Makes the DaemonSet's folders of the node and of its ConfigMap, with host memory, and less of it than there."""
    node = work / "node"
    for name in "run", "state", "config":
        (node / name).mkdir(parents=True)
    text = re.search(r"kvleased.conf: \|\n(.*?)---", MANIFEST, re.DOTALL)[1].replace("\n    ", "\n").strip()
    text = text.replace("devices = auto", "devices = host\nmax_clients = 256").replace("8GiB", "16MiB")
    (node / "config/kvleased.conf").write_text(f"{text}\n[device host]\nmemory = 64MiB\nextent = 2MiB\n")
    return node


def mounts(node):
    """Mounts of the manifest's first container; those that aren't of the node are a tmpfs."""
    words, first = [], MANIFEST.split("name: exporter")[0]
    for name, path, read_only in re.findall(r"- {name: (\w+), mountPath: ([^,}]+)(, readOnly: true)?}", first):
        of_node = (node / name).is_dir()
        words += ["-v", f"{node / name}:{path}{':ro' if read_only else ''}"] if of_node else [f"--tmpfs={path}"]
    return words


def check_without_room(podman):
    """Without a place to write to, the daemon reports it."""
    try:
        podman(*podman.run_words, "--rm", "--network", "none", "localhost/kvleased")
    except debian.Failed as e:
        assert "/run or /tmp: let it write to one of them" in str(e), e
        return
    raise AssertionError("kvleased --keep ran without a directory for its socket")


def start_kvleased(podman, node):
    wanted = manifest(r"add: \[(.*?)\]")
    capabilities = [c for c in wanted if boot.libc.prctl(PR_CAPBSET_READ, CAPABILITIES[c], 0, 0, 0) == 1]
    if capabilities != wanted:
        print(f"this machine has no {', '.join(set(wanted) - set(capabilities))}: without that")
    podman.start("kvleased", "--network", "none", "--user", "0", *(f"--cap-add={c}" for c in capabilities),
                 "--security-opt", "apparmor=unconfined", "-v", f"{BUILD}:/build:ro",
                 *mounts(node), "localhost/kvleased", *manifest(r"command: \[(kvleased.*?)\]"))


def is_ready(podman):
    """Runs the readiness probe."""
    probe = manifest(r"exec: {command: \[(.*?)\]}")
    return subprocess.run([*podman.words, "exec", "kvleased", *probe], capture_output=True, check=False).returncode == 0


def status(podman):
    return json.loads(podman("exec", "kvleased", "kvleasectl", "status", "--json"))


def check_worker(podman):
    """Runs a worker of another user; its cached pages are there after the daemon has crashed."""
    worker = machine.Worker("/run/kvlease/t/team-a/sock",
                            through=[*podman.words, "exec", "--interactive", "--user", f"65534:{GROUP}", "kvleased"])
    worker.publish_text(1, 4)
    assert worker.find(1, 4) == (4, True)
    before = status(podman)
    podman("exec", "kvleased", "sh", "-c", f"kill -KILL {before['pid']}")
    machine.wait_for("another daemon in the same container",
                     lambda: is_ready(podman) and status(podman)["pid"] != before["pid"])
    assert worker.find(1, 4) == (4, True)
    worker.end()


def check_exporter(podman, node):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = manifest(r"command: \[(kvlease-exporter.*?)\]")
    assert words[-1] == ":9758", words
    podman.start("exporter", "--network", "host", "--user", f"10001:{MONITOR_GROUP}",
                 "--security-opt", "no-new-privileges", "-v", f"{node}/run:/run/kvlease:ro", "localhost/kvleased",
                 *words[:-1], f"127.0.0.1:{port}")

    def metrics():
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    said = machine.wait_for("the exporter answers", metrics)
    assert re.search("^kvlease_up 1$", said, re.MULTILINE), said
    podman("stop", "exporter")


def check(podman, work):
    image = make_image(podman, work)
    assert image["Config"]["Cmd"] == ["kvleased", "--keep"], image["Config"]
    check_without_room(podman)
    node = make_folders(work)
    start_kvleased(podman, node)
    machine.wait_for("kvleased is ready", lambda: is_ready(podman))
    assert status(podman)["well"], status(podman)
    check_worker(podman)
    check_exporter(podman, node)
    podman("stop", "--time", "30", "kvleased")
    assert podman("inspect", "--format", "{{.State.ExitCode}}", "kvleased") == "0"


def enter_namespace():
    """Enters a mount namespace with the unified hierarchy mounted, the only one that podman's runtime accepts."""
    try:
        boot.call("mount namespaces aren't permitted (unshare)", boot.libc.unshare(boot.CLONE_NEWNS))
        boot.run("mount", "--make-rprivate", "/")
        boot.run("mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")
    except boot.Missing as e:
        raise debian.Missing(str(e)) from e


def test():
    debian.need("podman", by="full")
    enter_namespace()
    with debian.workspace("container") as work:
        podman = Podman(work)
        try:
            check(podman, work)
        except AssertionError as e:
            logs = subprocess.run([*podman.words, "logs", "kvleased"], capture_output=True, text=True, check=False)
            raise debian.Failed(f"{e}\n{logs.stdout}{logs.stderr}") from e
        finally:
            podman.remove()
    print("the image, and kvleased in it: ok")


debian.end(test)
