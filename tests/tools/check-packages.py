#!/usr/bin/env python3
"""Fails where a file that `meson install` installs is in none, or in two, of the Debian packages, where a
line of theirs matches nothing, where the library is installed in a directory in which ld.so doesn't look, and where a
link between installed documents leads nowhere.

    check-packages.py SOURCE BUILD    (BUILD: a build directory with prefix /usr or /usr/local)
"""
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys

source, build = map(pathlib.Path, sys.argv[1:])
debian = source / "packaging/debian"
problems = []


def introspect(what):
    return json.loads(subprocess.run(["meson", "introspect", what, str(build)], check=True,
                                     stdout=subprocess.PIPE, text=True).stdout)


options = {option["name"]: option["value"] for option in introspect("--buildoptions")}
libdir = os.path.join(options["prefix"], options["libdir"])


def as_packaged(path):
    """The path with Debian's prefix and its directory of libraries."""
    path = re.sub(f"^{libdir}/(?=libkvlease|pkgconfig/)", "/usr/lib/TRIPLET/", path)
    return re.sub(r"^/usr/local/", "/usr/", path).lstrip("/")


def matches(pattern, path):
    """Handles {usr/,}lib, where systemd's units are in one Debian or another."""
    either = [pattern.replace("{usr/,}", prefix, 1) for prefix in ("usr/", "")]
    return any(fnmatch.fnmatch(path, p) or fnmatch.fnmatch(path, p + "/*") for p in either)


from_source = introspect("--installed")
installed = {as_packaged(path) for path in from_source.values()}
claims = {}
for listing in sorted(debian.glob("*.install")):
    for line in listing.read_text().splitlines():
        pattern = line.split()[0]
        if len(line.split()) == 2:  # a file of the source
            if not (source / pattern).is_file():
                problems.append(f"{listing.name}: there is no {pattern}")
            continue
        found = {path for path in installed if matches(pattern, path)}
        optional = ("usr/share/man/", "usr/share/kvlease/bpftrace")  # scdoc or sys/sdt.h may be missing
        if not found and not pattern.startswith(optional):
            problems.append(f"{listing.name}: {pattern} matches nothing that is installed")
        for path in found:
            claims.setdefault(path, []).append(listing.name)
if len(installed) < 15:
    problems.append(f"only {len(installed)} files are installed")
for path in sorted(installed):
    if len(claims.get(path, [])) != 1:
        problems.append(f"{path} is in {' and '.join(claims.get(path, ['no package']))}")
for listing in [*debian.glob("*.docs"), *debian.glob("*.examples")]:
    problems += [f"{listing.name}: there is no {line}" for line in listing.read_text().splitlines()
                 if not (source / line).exists()]
# Folders are installed whole, but for docs/man and docs/site.
documents = {}
for path, target in from_source.items():
    path = pathlib.Path(path)
    if "/doc/kvleased" in target:
        below = [f.relative_to(path) for f in path.rglob("*") if f.is_file()] if path.is_dir() else [pathlib.Path()]
        documents |= {os.path.normpath(f"{target}/{f}"): path / f for f in below if f.parts[:1] not in (("man",), ("site",))}
if len(documents) < 30:
    problems.append(f"only {len(documents)} documents are installed")
for target, path in documents.items():
    if path.suffix == ".md":
        for link in re.findall(r"\]\(([^)#\s]+)", path.read_text()):
            leads_to = os.path.normpath(f"{os.path.dirname(target)}/{link}")
            if "://" not in link and not any(d == leads_to or d.startswith(leads_to + "/") for d in documents):
                problems.append(f"{target}: {link} isn't installed")
# ldconfig also names directories that don't exist, and says so.
searched = subprocess.run(["/sbin/ldconfig", "-v", "-N", "-X"], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True).stdout
if libdir not in re.findall(r"/[^:\s]+", searched):
    problems.append(f"libkvlease.so is installed in {libdir}, where ld.so doesn't look: meson configure -Dlibdir=lib")
print("\n".join(problems) if problems else f"{len(installed)} files in packages: ok")
sys.exit(1 if problems else 0)
