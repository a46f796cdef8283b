#!/usr/bin/env python3
"""Tries packaging/release.sh in a clone of its own: check-release.py SOURCE [--full]

Without --full: refusals, the version in all files, the tag, the tarball, the SBOM and the sums. With --full: all steps
but the tests, the tarball and the wheel twice, from trees in different directories. The image's base is made by debootstrap, so
that no registry is asked; without podman, root or Debian's mirror there is no image. Skipped (77) where SOURCE is no clone of git.
"""

import filecmp
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import debian

SOURCE, FULL = pathlib.Path(sys.argv[1]).resolve(), "--full" in sys.argv
NEXT = "9.8.7"
STEPS = "check version abi tag tarball debs rpm wheel image sbom sums".split()  # all but the tests
# Files that may name an older version, besides *.symbols.
HISTORY = {
    "CHANGELOG.md",
    "client/lib/kvlease.h",
    "packaging/release.sh",
    "proto/kvlease.proto",
}


def expect(is_so, what):
    if not is_so:
        sys.exit(f"check-release.py: {what}")


def printed(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def commit(clone, text):
    who = ["-c", "user.name=Test", "-c", "user.email=test@example"]
    printed("git", "-C", clone, "add", "--all")
    printed("git", "-C", clone, *who, "commit", "--quiet", "--message", text)


def make_clone(work):
    """Commits all files of SOURCE in a new repository, also those that are new there."""
    clone = work / "kvlease"
    clone.mkdir()
    names = printed(
        "git",
        "-C",
        SOURCE,
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ).split("\0")
    names = "\n".join(name for name in names if os.path.lexists(SOURCE / name) and name)
    subprocess.run(
        f"tar -cC '{SOURCE}' -T - | tar -xC '{clone}'",
        shell=True,
        check=True,
        input=names,
        text=True,
    )
    changes = clone / "CHANGELOG.md"
    changes.write_text(
        re.sub(
            r"^## Unreleased .*$",
            f"## Unreleased ({NEXT})",
            changes.read_text(),
            count=1,
            flags=re.MULTILINE,
        )
    )
    printed("git", "init", "--quiet", clone)
    commit(clone, "source")
    return clone


class Clone:
    def __init__(self, work):
        self.top = make_clone(work)
        self.dist = self.top / "dist" / NEXT
        self.env = {}

    def release(self, *words, status=0, says=""):
        done = subprocess.run(
            ["sh", self.top / "packaging/release.sh", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={
                **os.environ,
                "GIT_AUTHOR_NAME": "T",
                "GIT_AUTHOR_EMAIL": "t@example",
                "GIT_COMMITTER_NAME": "T",
                "GIT_COMMITTER_EMAIL": "t@example",
                **self.env,
            },
        )
        expect(
            done.returncode == status,
            f"{words}: exit status {done.returncode}, not {status}: {done.stdout[-4000:]}",
        )
        expect(says in done.stdout, f"{words}: says {done.stdout}, not {says}")
        return done.stdout

    def git(self, *words):
        return printed("git", "-C", self.top, *words).strip()


def check_refusals(clone):
    head = clone.git("rev-parse", "HEAD")
    for words, says in [
        ((), "VERSION is three numbers"),
        (("1.2",), "VERSION is three numbers"),
        (("--onyl",), "no option --onyl"),
        (("--only", "wheels", NEXT), "no step 'wheels'"),
        ((NEXT, "1.2.3"), "one VERSION"),
    ]:
        clone.release(*words, status=2, says=says)
    clone.release(
        "--dry-run",
        "7.7.7",
        status=1,
        says="CHANGELOG.md has no section '## Unreleased (7.7.7)'",
    )
    (clone.top / "new").write_text("")
    clone.release(NEXT, status=1, says="?? new")
    (clone.top / "new").unlink()
    clone.release("--only", "tarball", NEXT, status=1, says="run --only version first")
    steps = re.findall(
        "^== (.*)$",
        clone.release("--dry-run", "--no-tests", NEXT, says="nothing was changed"),
        re.MULTILINE,
    )
    expect(steps == STEPS, steps)
    expect(
        clone.git("rev-parse", "HEAD") == head and not clone.git("status", "--porcelain"),
        "--dry-run changed the clone",
    )


def check_version(clone):
    old = (SOURCE / "VERSION").read_text().strip()
    clone.release("--only", "check", "--only", "version", NEXT)
    expect((clone.top / "VERSION").read_text() == NEXT + "\n", "VERSION")
    expect(
        re.search(
            rf"^## {NEXT} \(20\d\d-\d\d-\d\d\)$",
            (clone.top / "CHANGELOG.md").read_text(),
            re.MULTILINE,
        ),
        "CHANGELOG.md",
    )
    expect(clone.git("log", "-1", "--format=%s") == f"release: kvlease {NEXT}", "no commit")
    left = printed(
        "git",
        "-C",
        clone.top,
        "grep",
        "-lwF",
        old,
        "--",
        ":!*.symbols", ":!tests",
        ":!client/ctl",
        ":!*.svg",
    ).split()
    expect(set(left) <= HISTORY, f"still of {old}: {set(left) - HISTORY}")
    named = set(printed("git", "-C", clone.top, "grep", "-lwF", NEXT).split())
    expect(
        {"VERSION", "packaging/helm/kvlease/Chart.yaml", "packaging/compose/vllm.yaml"} <= named,
        named,
    )


def check_quick(clone):
    clone.release("--only", "tag", "--only", "tarball", NEXT)
    expect(clone.git("cat-file", "-t", f"v{NEXT}") == "tag", "no annotated tag")
    tarball = clone.dist / f"kvlease-{NEXT}.tar.gz"
    shutil.copy(tarball, clone.top.parent / "first")
    clone.release("--only", "tarball", NEXT)
    expect(
        filecmp.cmp(tarball, clone.top.parent / "first", shallow=False),
        "the tarball differs when it is made again",
    )
    expect(
        f"kvlease-{NEXT}/VERSION" in printed("tar", "-tzf", tarball).splitlines(),
        "the tarball has no VERSION",
    )
    with zipfile.ZipFile(clone.dist / "made.whl", "w") as wheel:
        wheel.writestr("kvlease/licenses/libc6.txt", "licence")
    clone.release("--only", "sbom", "--only", "sums", NEXT)
    (clone.dist / "made.whl").unlink()
    bom = json.loads((clone.dist / f"kvlease-{NEXT}.cdx.json").read_text())
    libc = printed("dpkg-query", "-W", "-f", "${Version}\n", "libc6").splitlines()[0]
    expect(
        [c["version"] for c in bom["components"] if c["name"] == "libc6"] == [libc],
        bom["components"],
    )
    expect(
        {"ref": "made.whl", "dependsOn": ["libc6"]} in bom["dependencies"],
        bom["dependencies"],
    )
    expect(tarball.name in (clone.dist / "SHA256SUMS").read_text(), "SHA256SUMS")


def make_base(work):
    """Makes the image localhost/base. Returns the environment in which podman has it, and builds without control groups."""
    debian.need("podman", by="full")
    root = debian.make(work / "root", "bookworm", "ca-certificates")
    storage = {"driver": "vfs", "graphroot": work / "storage", "runroot": work / "run"}
    engine = {"cgroup_manager": "cgroupfs", "events_logger": "none"}
    for name, values in ("storage", storage), ("engine", engine):
        (work / f"{name}.conf").write_text("\n".join([f"[{name}]", *(f'{key} = "{value}"' for key, value in values.items())]) + "\n")
    env = {"CONTAINERS_STORAGE_CONF": str(work / "storage.conf"), "CONTAINERS_CONF": str(work / "engine.conf"), "BUILDAH_ISOLATION": "chroot"}
    debian.run("tar", "-C", root, "-cf", work / "base.tar", ".")
    debian.run("podman", "import", work / "base.tar", "localhost/base", env={**os.environ, **env})
    return env


def release_all(clone):
    """Runs all steps but the tests; returns the output."""
    try:
        clone.env = make_base(clone.top.parent)
    except debian.Missing as e:
        print(f"no image: {e}")
        return clone.release(*(word for step in STEPS if step != "image" for word in ("--only", step)), NEXT)
    said = clone.release("--no-tests", "--base", "localhost/base", NEXT)
    with tarfile.open(clone.dist / f"kvleased-{NEXT}.oci.tar") as image:
        expect("index.json" in image.getnames(), "the image is no OCI archive")
    return said


def check_full(clone):
    said = release_all(clone)
    kept = clone.top.parent / "kept"
    clone.dist.rename(kept)
    clone.release("--only", "tarball", "--only", "wheel", NEXT)
    for path in clone.dist.iterdir():
        expect(
            filecmp.cmp(path, kept / path.name, shallow=False),
            f"{path.name} differs when it is made again",
        )
    names = [p.name for p in kept.iterdir()]
    expect(
        any(re.fullmatch(rf"kvlease-{NEXT}-cp311-abi3-manylinux_2_\d+_x86_64.whl", name) for name in names),
        names,
    )
    for package in (
        "kvleased",
        "kvlease-tools",
        "libkvlease0",
        "libkvlease-dev",
        "python3-kvlease",
    ):
        expect(
            any(name.startswith(f"{package}_{NEXT}_") for name in names),
            f"no {package} in {names}",
        )
    expect("rpm (" in said or f"kvlease-{NEXT}-1.src.rpm" in names, names)
    printed("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=kept)
    print("\n".join(sorted(names)))


def main():
    if (
        subprocess.run(
            ["git", "-C", SOURCE, "rev-parse", "--git-dir"],
            capture_output=True,
            check=False,
        ).returncode
        != 0
    ):
        print("skipped: the source is no clone of git")
        return 77
    with tempfile.TemporaryDirectory(prefix="kvl-release-", ignore_cleanup_errors=True) as name:
        clone = Clone(pathlib.Path(name))
        if FULL:
            check_full(clone)
        else:
            check_refusals(clone)
            check_version(clone)
            check_quick(clone)
    print("release: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
