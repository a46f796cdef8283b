#!/usr/bin/env python3
"""Builds the Debian packages and tries them beside a systemd of its own (boot.py).

    packages.py SOURCE          built by this machine, tried in a fresh Debian 12; where none can be made, which
                                needs debootstrap and Debian's mirror, over this machine's root
    packages.py SOURCE SUITE    built in a fresh Debian of that suite, by the commands of docs/start/host.md, and tried in
                                another; skipped (77) where none can be made
"""
import pathlib
import shutil
import subprocess
import sys

import debian

# Packages that test_packages.py and systemd need themselves.
TRIED_WITH = ["systemd", "python3-minimal", "libpython3-stdlib", "gcc", "libc6-dev", "pkg-config"]
BUILD = "sh /source/packaging/install-deps.sh package && sh /source/packaging/deb.sh --lintian /packages"


def build_in(root, suite, source):
    """Builds the packages; returns their folder."""
    debian.make(root, suite, "ca-certificates")
    debian.run(*debian.inside(root, source, "sh", "-ec", BUILD))
    return root / "packages"


def make_fresh(root, suite, source, packages):
    """Makes a Debian with only the packages' dependencies: the systemd beside it has no network."""
    debian.make(root, suite, *TRIED_WITH)
    shutil.copytree(packages, root / "packages")
    fetch = "apt-get install -y --no-install-recommends --download-only /packages/*.deb"
    debian.run(*debian.inside(root, source, "sh", "-ec", fetch), trouble=debian.Missing)
    shutil.rmtree(root / "packages")
    (root / "source").rmdir()
    return root


def test():
    source, suite = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else None
    with debian.workspace("packages") as work:
        if suite:
            packages = build_in(work / "builder", suite, source)
        else:
            packages = work / "packages"
            debian.build(source, packages)
        try:
            root = make_fresh(work / "root", suite or "bookworm", source, packages)
        except debian.Missing as e:
            if suite:
                raise
            print(f"{e}\nno fresh Debian can be made here: over this machine's root")
            root = pathlib.Path("/")
        return subprocess.run([sys.executable, source / "tests/system/boot.py", "--packages", "--root", root,
                               "--timeout", "600", "--bind", f"packages={packages}", "--bind", f"source={source}",
                               "/kvl/source/tests/system/test_packages.py"], check=False).returncode


debian.end(test)
