#!/usr/bin/env python3
"""The example of an event loop, with a daemon: all of its requests end, in both transports.

    loop.py KVLEASED LOOP
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

kvleased, loop = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:])
PATIENCE = 60  # s; beside other tests it takes its time
N_REQUESTS = 20000  # of 100 texts


def start(folder):
    (folder / "none.conf").touch()
    options = ["daemon.devices=host", "device.host.memory=64MiB", "device.host.extent=2MiB",
               "tenant.chat.limit=64MiB"]
    daemon = subprocess.Popen(
        [kvleased, "-c", folder / "none.conf", "--runtime-dir", folder / "run",
         "--state-dir", folder / "state", *(w for o in options for w in ("-o", o))],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in daemon.stdout:
        if "ready in" in line:
            return daemon
    sys.exit("loop.py: kvleased didn't start")


def run(folder, no_shm):
    env = {**os.environ, "KVLEASE_SOCKET": str(folder / "run/t/chat/sock"),
           "KVLEASE_NO_SHM": no_shm}
    done = subprocess.run([loop, str(N_REQUESTS)], env=env, text=True, timeout=PATIENCE,
                          stdout=subprocess.PIPE, check=True)
    return re.fullmatch(r"(\d+) requests: (\d+) found, (\d+) computed\n", done.stdout).groups()


for no_shm in "1", "0":
    with tempfile.TemporaryDirectory(prefix="kvlease-loop-") as name:
        folder = pathlib.Path(name)
        daemon = start(folder)
        try:
            n, n_found, n_computed = map(int, run(folder, no_shm))
            if n != N_REQUESTS or n_found + n_computed != n or n_computed < 100:
                sys.exit(f"loop.py: {n} requests, {n_found} found, {n_computed} computed")
            # What was published stays: it is all found.
            if int(run(folder, no_shm)[1]) != N_REQUESTS:
                sys.exit("loop.py: the second run computed what was cached")
        finally:
            daemon.terminate()
            daemon.wait(timeout=PATIENCE)
            daemon.stdout.close()
