#!/usr/bin/env python3
"""What the shells complete, with a daemon that has tenants and a namespace, and without one.

    completion.py SCRIPT KVLEASED KVLEASECTL HELLO SESSION

bash runs its completion function as it does after a Tab. In zsh compadd and _files are replaced by
functions that print; skipped (exit status 77) where it isn't installed, after bash's.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

script, kvleased, kvleasectl, hello, session = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:])
problems = []

BASH = r"""
compopt() { :; }
COMP_LINE=$1 COMP_POINT=${#1}
source "$2"
spec=$(complete -p "$3") || exit
set -- $spec
[ "$1 $2" = "complete -F" ] && "$3" && printf '%s\n' "${COMPREPLY[@]}"
"""
ZSH = r"""
compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -rl -- "$@" }
_files() { print -r -- ":files $*" }
words=("${(@s: :)1}") CURRENT=${#words}
completed() { source $1 }
completed $2
"""


def run(shell, line, env):
    program = line.split()[0]
    if shell == "bash":
        command = ["bash", "--norc", "-c", BASH, "bash", line, script, program]
    else:
        command = ["zsh", "-f", "-c", ZSH, "zsh", line, script]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60)
    if done.stderr:
        problems.append(f"{shell}: '{line}' says: {done.stderr.strip()}")
    return [word for word in done.stdout.splitlines() if word]


def completed(shell, line, env):
    """The words, each as it would stand on the line; zsh chooses those that match by itself."""
    words, current = run(shell, line, env), line.split(" ")[-1]
    if shell == "bash" and "=" in current:
        return [current.split("=")[0] + "=" + word for word in words]
    return [word for word in words if word.startswith((current, ":"))]


def expect(shell, line, wanted, env, exact=True):
    found = completed(shell, line, env)
    if sorted(found) != sorted(wanted) if exact else not set(wanted) <= set(found):
        problems.append(f"{shell}: '{line}': {found} rather than {wanted}")


def expect_without_daemon(shell, env):
    expect(shell, "kvleasectl ten", ["tenants"], env)
    expect(shell, "kvleasectl tenants ", ["list", "show", "add", "set", "remove"], env)
    expect(shell, "kvleasectl --json trace re", ["replay", "recommend", "record"], env)
    expect(shell, "kvleasectl remo", ["remote"], env)
    expect(shell, "kvleasectl trace record o", ["on", "off"], env)
    expect(shell, "kvleasectl recall --t", ["--timeout"], env)
    expect(shell, "kvleasectl status --no", ["--no-headings"], env)
    expect(shell, "kvleasectl events --kind re", ["refused", "resized", "revoked", "remote"], env)
    expect(shell, "kvleasectl events --kind refused,re", ["refused,resized", "refused,revoked", "refused,remote"], env)
    expect(shell, "kvleasectl events --kind=refused,ev", ["--kind=refused,evicted"], env)
    expect(shell, "kvleasectl trace replay --policies lru,s", ["lru,s3fifo", "lru,sieve"], env)
    expect(shell, "kvleasectl trace replay --policies d", ["daemon"], env)
    expect(shell, "kvleasectl trace recommend --time-unit ", ["ms", "s", "us", "ns"], env)
    expect(shell, "kvleasectl trace hosts --affinity prefix,r", ["prefix,random", "prefix,round-robin"], env)
    expect(shell, "kvleasectl trace hosts --store ev", ["evict="], env)
    expect(shell, "kvleasectl tenants set chat when_full=", [f"when_full={v}" for v in ("reject", "queue", "degrade")],
           env)
    expect(shell, "kvleasectl tenants add new limit=1GiB class=p", ["class=pinned"], env)
    expect(shell, "kvleasectl tenants set chat limit=", [], env)
    expect(shell, "kvleasectl top --view clients --sort re", ["req/s", "recalled"], env)
    expect(shell, "kvleasectl top --view=regions --sort re", [], env)
    expect(shell, "kvleasectl tenants set chat limit=1GiB reserve_m", ["reserve_min=", "reserve_max="], env)
    expect(shell, "kvleasectl top --view ", ["tenants", "namespaces", "clients", "regions"], env)
    expect(shell, "kvleasectl top --sort re", ["req/s", "reserve", "refuse/s", "recalled"], env)
    expect(shell, "kvleasectl top --sort=hit", ["--sort=hit/s", "--sort=hit%"], env)
    expect(shell, "kvleased --check", ["--check-config"], env)
    expect(shell, "kvleased -o daemon.log_l", ["daemon.log_level="], env)
    expect(shell, "kvleased --option tenant.chat.when_full=",
           [f"tenant.chat.when_full={v}" for v in ("reject", "queue", "degrade")], env)
    expect(shell, "kvleasectl status x/[*", [], env)
    expect(shell, "kvleasectl --/[ x", [], env)


def expect_of_daemon(shell, env):
    expect(shell, "kvleasectl tenants show ", ["chat", "chess", "search"], env)
    expect(shell, "kvleasectl tenants remove --force ch", ["chat", "chess"], env)
    expect(shell, "kvleasectl purge chat ", ["hello", "session"], env)
    expect(shell, "kvleasectl purge search ", [], env)
    expect(shell, "kvleasectl namespaces --tenant s", ["search"], env)
    expect(shell, "kvleasectl namespaces --tenant=s", ["--tenant=search"], env)
    expect(shell, "kvleasectl recall chat --namespace h", ["hello"], env)
    expect(shell, "kvleasectl tenants add ", [], env)
    expect(shell, "kvleased -o tenant.chess.exc", ["tenant.chess.exclusive="], env)
    expect(shell, "kvleased -o device.host-1.huge", ["device.host-1.huge_pages="], env)
    expect(shell, "kvleased -o daemon.devices=", [f"daemon.devices={v}" for v in ("auto", "host", "host-1")], env)
    expect(shell, "kvleasectl tenants set chat placement=",
           [f"placement={v}" for v in ("pack", "spread", "device=host", "device=host-1")], env)
    expect(shell, "kvleasectl warm chat hello --session ", ["turn-1", "turn-2"], env)
    expect(shell, "kvleasectl sessions purge chess --session ", [], env)
    expect(shell, "kvleasectl remote c", ["cluster"], env)


def expect_nothing_of_daemon(shell, env):
    for line in ("kvleasectl tenants show ", "kvleasectl purge chat ", "kvleasectl clients --tenant "):
        expect(shell, line, [], env)


def expect_files(folder, env):
    """bash's own; zsh is asked whether it would."""
    (folder / "day.jsonl").touch()
    line = f"kvleasectl trace replay {folder}/day"
    expect("bash", line, [f"{folder}/day.jsonl"], env)
    expect("bash", f"kvleased --config {folder}/d", [f"{folder}/day.jsonl"], env)
    expect("bash", f"kvleased --state-dir {folder}/ru", [f"{folder}/run"], env)
    if shutil.which("zsh"):
        expect("zsh", line, [":files "], env)
        expect("zsh", "kvleasectl --runtime-dir ", [":files -/"], env)


def start(folder):
    """A daemon on the host's memory, with tenants, and a namespace of one."""
    tenants = [word for name in ("chat", "chess", "search") for word in ("-o", f"tenant.{name}.limit=16MiB")]
    daemon = subprocess.Popen(
        [kvleased, "-c", folder / "none.conf", "--runtime-dir", folder / "run", "--state-dir",
         folder / "state", "-o", "daemon.devices=host,host-1", "-o", "device.host.memory=64MiB", "-o",
         "device.host.extent=2MiB", "-o", "device.host-1.memory=64MiB", "-o",
         "device.host-1.extent=2MiB", *tenants], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in daemon.stdout:
        if "ready in" in line:
            break
    else:
        sys.exit("kvleased didn't start")
    as_client = {**os.environ, "KVLEASE_SOCKET": str(folder / "run/t/chat/sock")}
    for command in ([hello], [session, "turn-1", "a text that is longer than a page"],
                    [session, "turn-2", "another text that is longer than a page"]):
        subprocess.run(command, env=as_client, check=True, stdout=subprocess.DEVNULL)
    return daemon


def main():
    shells = [shell for shell in ("bash", "zsh") if shutil.which(shell)]
    with tempfile.TemporaryDirectory(prefix="kvl-completion-") as folder:
        folder = pathlib.Path(folder)
        (folder / "none.conf").write_text("[remote cluster]\naddresses = 127.0.0.1:1 127.0.0.1:2\n")
        path = f"{pathlib.Path(kvleased).parent}:{pathlib.Path(kvleasectl).parent}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path,
               "KVLEASE_ADMIN_SOCKET": str(folder / "run/admin.sock"), "KVLEASE_COMPLETION_SEC": "60"}
        daemon = start(folder)
        try:
            for shell in shells:
                expect_without_daemon(shell, env)
                expect_of_daemon(shell, env)
            expect_files(folder, env)
        finally:
            daemon.terminate()
            daemon.wait(timeout=60)
        for shell in shells:
            expect_nothing_of_daemon(shell, env)
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(1)
    print(" and ".join(shells) + ": ok")
    sys.exit(0 if "zsh" in shells else 77)


main()
