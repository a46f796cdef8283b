#!/usr/bin/env python3
"""kvleasectl --host, beside a real daemon.

    remote.py KVLEASED KVLEASECTL          with a stand-in for ssh in PATH
    remote.py KVLEASED KVLEASECTL sshd     with ssh and an sshd of its own, on a high port of this host

The stand-in does with its words what ssh does: options, "--", the host, and the rest joined by
blanks for a shell there. It writes down what it was started with.

Without sshd the second exits with 77 (skipped): packaging/install-deps.sh full installs it, and lets
none run on port 22.
"""
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

kvleased, kvleasectl = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:3])
problems = []

SSH = r"""#!/bin/sh
for word; do printf '%s\0' "$word"; done > "$0.words"
if [ -e "$0.down" ]; then echo "ssh: connect to host gpu1 port 22: Connection refused" >&2; exit 255; fi
while [ "$1" != -- ]; do shift; done
shift 2
[ ! -e "$0.path" ] || PATH=$(cat "$0.path")
exec /bin/sh -c "$*"
"""


class Scene:
    """A daemon, and a folder with the stand-in."""

    def __init__(self, folder):
        self.folder = folder
        self.ssh = folder / "bin/ssh"
        self.ssh.parent.mkdir()
        self.ssh.write_text(SSH)
        self.ssh.chmod(0o755)
        self.socket = folder / "run/admin.sock"
        (folder / "none.conf").touch()
        # What is meant for this host must not get to the other one.
        self.env = {**os.environ, "PATH": f"{self.ssh.parent}:{pathlib.Path(kvleasectl).parent}:/usr/bin:/bin",
                    "KVLEASE_ADMIN_SOCKET": "/nowhere"}
        self.env.pop("KVLEASE_COLUMNS", None)
        self.daemon = subprocess.Popen(
            [kvleased, "-c", folder / "none.conf", "--runtime-dir", folder / "run", "--state-dir",
             folder / "state", "-o", "daemon.devices=host", "-o", "device.host.memory=64MiB", "-o",
             "device.host.extent=2MiB", "-o", "tenant.chat.limit=16MiB"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if not any("ready in" in line for line in self.daemon.stdout):
            sys.exit("kvleased didn't start")

    def run(self, *words, url="ssh://gpu1", stdin=subprocess.DEVNULL, **env):
        return subprocess.run([kvleasectl, "--host", url, "--socket", self.socket, *words], stdin=stdin,
                              env={**self.env, **env}, capture_output=True, text=True, timeout=60)

    def end(self):
        self.daemon.terminate()
        self.daemon.wait(timeout=60)

    def words(self):
        return pathlib.Path(f"{self.ssh}.words").read_text().split("\0")[:-1]


# Only the user who runs this gets in, by a key that is made for it. PATH is what a shell there has.
SSHD = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PidFile none
SetEnv PATH={path}
"""
SSH_CONFIG = """\
Host *
IdentityFile {folder}/user
IdentitiesOnly yes
UserKnownHostsFile {folder}/known
BatchMode yes
LogLevel ERROR
"""


class SshScene(Scene):
    """ssh in PATH is ssh with a configuration of ours, and reaches an sshd of ours."""

    def __init__(self, folder, sshd):
        super().__init__(folder)
        for name in "host", "user":
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        key = " ".join((folder / "host.pub").read_text().split()[:2])
        (folder / "known").write_text(f"[127.0.0.1]:{self.port} {key}\n")
        self.config = folder / "ssh_config"
        self.config.write_text(SSH_CONFIG.format(folder=folder))
        self.ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.config} "$@"\n')
        (folder / "sshd_config").write_text(SSHD.format(folder=folder, port=self.port, path=self.env["PATH"]))
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # where it has no privileges; its package makes it at boot
        self.log = open(folder / "sshd.log", "w+")
        self.sshd = subprocess.Popen([sshd, "-D", "-e", "-f", folder / "sshd_config"], stderr=self.log)
        self.url = f"ssh://{pwd.getpwuid(os.getuid()).pw_name}@127.0.0.1:{self.port}"
        deadline = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", self.port)) != 0:
            if self.sshd.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"sshd didn't start: {self.said()}")
            time.sleep(0.05)

    def run(self, *words, url=None, **more):
        return super().run(*words, url=url or self.url, **more)

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def end(self):
        self.sshd.terminate()
        self.sshd.wait(timeout=60)
        super().end()


def expect(what, is_so, *said):
    if not is_so:
        problems.append(f"{what}: {said}")


def test_answers(scene):
    """The same answer, arguments and exit code as there."""
    done = scene.run("tenants", "show", "chat", "--json", url="ssh://joe@gpu1:2222")
    expect("show", done.returncode == 0 and json.loads(done.stdout)["name"] == "chat", done)
    expect("ssh's words", scene.words()[:7] == ["-n", "-l", "joe", "-p", "2222", "--", "gpu1"], scene.words())
    done = scene.run("tenants", "set", "chat", "limit=8MiB")
    expect("set", done.returncode == 0, done)
    done = scene.run("tenants", "show", "nobody")
    expect("refused there", done.returncode == 1 and "no tenant nobody" in done.stderr, done)
    done = scene.run("tenants", "--bytes", KVLEASE_COLUMNS="40")
    expect("width", done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 40, done)


def test_hostile_words(scene):
    """What a shell would take for its own comes through as a word."""
    trap = scene.folder / "trap"
    for word in (f"$(touch {trap})", f"`touch {trap}`", f"x;touch {trap}", f"'; touch {trap}; '", f"\\'; touch {trap} #",
                 f"x\ntouch {trap}", f"|touch {trap}"):
        done = scene.run("events", "--tenant", word)
        # kvleased refuses control characters.
        expect(word, done.returncode == (1 if "\n" in word else 0) and not trap.exists(), done)
    for url in ("ssh://-oProxyCommand=id", "ssh://a;id", "gpu1"):
        done = scene.run("status", url=url)
        expect(url, done.returncode == 2 and "ssh://[USER@]HOST[:PORT]" in done.stderr, done)


def test_failures(scene):
    """ssh's failure, a host without kvleasectl and a host without kvleased are told apart."""
    down, path = pathlib.Path(f"{scene.ssh}.down"), pathlib.Path(f"{scene.ssh}.path")
    down.touch()
    done = scene.run("status")
    expect("ssh fails", done.returncode == 3 and "Connection refused" in done.stderr and
           "ssh to gpu1 failed" in done.stderr, done)
    down.unlink()
    path.write_text("/nonexistent")
    done = scene.run("status")
    expect("no kvleasectl", done.returncode == 3 and "there is no kvleasectl on gpu1" in done.stderr, done)
    path.unlink()
    done = scene.run("--socket", "/nonexistent/admin.sock", "status")
    expect("no kvleased", done.returncode == 3 and "there is no socket /nonexistent/admin.sock" in done.stderr
           and "ssh" not in done.stderr, done)
    done = scene.run("status", PATH="/nonexistent")
    expect("no ssh", done.returncode == 3 and "no ssh in PATH" in done.stderr, done)


def test_input(scene):
    """Only top's screen has keys: -n keeps ssh from what a loop around kvleasectl reads."""
    done = scene.run("top", "--batch", "--count", "1")
    expect("batch", done.returncode == 0 and scene.words()[0] == "-n" and "TENANT" in done.stdout, done)


def test_interrupt(scene):
    """Who ends kvleasectl here ends ssh with it."""
    follower = subprocess.Popen([kvleasectl, "--host", getattr(scene, "url", "ssh://gpu1"), "--socket", scene.socket, "events", "--follow"],
                                env=scene.env, stdout=subprocess.PIPE, text=True)
    line = follower.stdout.readline()
    expect("follows", "started" in line, line)
    follower.send_signal(signal.SIGTERM)
    try:
        follower.wait(timeout=30)
        # As ssh ended: by the signal, or as kvleasectl there does where the shell became it.
        expect("interrupted", follower.returncode in (0, -signal.SIGTERM), follower.returncode)
    except subprocess.TimeoutExpired:
        problems.append("kvleasectl doesn't end with SIGTERM")
        follower.kill()
    follower.stdout.close()


def test_ssh(scene):
    """The same over ssh itself: answers, exit codes, words that a shell would take, and its failures."""
    done = scene.run("tenants", "show", "chat", "--json")
    expect("show", done.returncode == 0 and json.loads(done.stdout)["name"] == "chat", done, scene.said())
    done = scene.run("tenants", "set", "chat", "limit=8MiB")
    expect("set", done.returncode == 0, done)
    done = scene.run("tenants", "show", "nobody")
    expect("refused there", done.returncode == 1 and "no tenant nobody" in done.stderr, done)
    trap = scene.folder / "trap"
    for word in f"$(touch {trap})", f"'; touch {trap}; '", f"x && touch {trap}":
        done = scene.run("events", "--tenant", word)
        expect(word, done.returncode == 0 and not trap.exists(), done)
    done = scene.run("top", "--batch", "--count", "1")
    expect("batch", done.returncode == 0 and "TENANT" in done.stdout, done)
    done = scene.run("status", url=f"ssh://127.0.0.1:{scene.port}", PATH=f"{scene.ssh.parent}")
    expect("this user without being named", done.returncode == 0 and "all well" in done.stdout, done)
    done = scene.run("status", url="ssh://127.0.0.1:1")
    expect("nobody listens", done.returncode == 3 and "Connection refused" in done.stderr
           and "ssh to 127.0.0.1 failed" in done.stderr, done)


def test_ssh_refuses(scene):
    """A host with another key, and a user whom it doesn't let in."""
    known, user = scene.folder / "known", scene.folder / "user.pub"
    words = known.read_text().split()
    other = user.read_text().split()
    known.write_text(" ".join([words[0], *other[:2]]) + "\n")
    done = scene.run("status")
    expect("another host", done.returncode == 3 and "verification failed" in done.stderr, done)
    known.write_text(" ".join(words) + "\n")
    user.write_text(" ".join(words[1:]) + "\n")
    done = scene.run("status")
    expect("another user", done.returncode == 3 and "Permission denied" in done.stderr, done)
    user.write_text(" ".join(other) + "\n")


def make_scene(folder):
    if sys.argv[3:] != ["sshd"]:
        return Scene(folder), (test_answers, test_hostile_words, test_failures, test_input, test_interrupt)
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if not sshd or not shutil.which("ssh"):
        print("skipped: there is no sshd (sh packaging/install-deps.sh full)")
        sys.exit(77)
    return SshScene(folder, sshd), (test_ssh, test_ssh_refuses, test_interrupt)


def main():
    with tempfile.TemporaryDirectory(prefix="kvl-remote-") as folder:
        scene, tests = make_scene(pathlib.Path(folder))
        try:
            for test in tests:
                test(scene)
        finally:
            scene.end()
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(1)
    print("--host: ok")


main()
