#!/usr/bin/env python3
"""Builds the RPM packages and looks at what they hold: rpm.py SOURCE

Every file that `meson install` puts somewhere is in one package, by rpmbuild itself, which fails over
files that are in none. Here: that each package has what it is for, and nothing that is another's; that
the configuration survives upgrades; that the daemon of the package runs. Skipped (77) without rpmbuild.
"""
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

CONTENTS = {
    "kvleased": ["/etc/kvlease/kvleased.conf", "/etc/kvlease/kvleased.conf.d", "/usr/sbin/kvleased",
                 "systemd/system/kvleased.service", "systemd/system/kvleased@.service",
                 "systemd/system/kvleased-admin.socket", "/usr/lib/tmpfiles.d/kvlease.conf",
                 "/usr/lib/systemd/catalog/kvlease.catalog"],
    "kvlease-tools": ["/usr/bin/kvleasectl", "/usr/bin/kvlease-exporter", "/usr/lib/sysusers.d/kvlease.conf",
                      "systemd/system/kvlease-exporter.service", "/usr/share/kvlease/grafana/kvlease.json",
                      "/usr/share/kvlease/prometheus/kvlease.rules.yml",
                      "/usr/share/bash-completion/completions/kvleasectl"],
    "kvlease-events": ["/usr/bin/kvlease-events", "systemd/system/kvlease-events@.service"],
    "kvlease-exchange": ["/usr/sbin/kvlease-exchange", "systemd/system/kvlease-exchange.service",
                         "systemd/system/kvlease-exchange.socket"],
    "libkvlease": ["libkvlease.so.0"],
    "libkvlease-devel": ["/usr/include/kvlease.h", "libkvlease.so", "libkvlease.a", "kvlease.pc"],
}


def printed(*command, **kwargs):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **kwargs).stdout


def expect(is_so, what):
    if not is_so:
        sys.exit(f"rpm.py: {what}")


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    if not shutil.which("rpmbuild"):
        print("skipped: rpmbuild isn't installed; Debian's package rpm has it")
        return 77
    version = (source / "VERSION").read_text().strip()
    with tempfile.TemporaryDirectory(prefix="kvl-rpm-") as name:
        folder = pathlib.Path(name)
        done = subprocess.run(["sh", source / "packaging/rpm.sh", "--nodeps", folder / "out"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        expect(done.returncode == 0, f"rpm.sh: {done.stdout[-4000:]}")
        built = sorted((folder / "out").iterdir())
        expect([p.name for p in built if p.name.endswith(".src.rpm")] == [f"kvlease-{version}-1.src.rpm"], f"built: {built}")
        packages = {printed("rpm", "-qp", "--qf", "%{NAME}", p): p for p in built if not p.name.endswith(".src.rpm")}
        expect(set(packages) == set(CONTENTS), f"packages are {sorted(packages)}")
        files = {name: printed("rpm", "-qlp", p).split() for name, p in packages.items()}
        for name, wanted in CONTENTS.items():
            for path in wanted:
                expect(any(f == path or f.endswith("/" + path) for f in files[name]),
                       f"{name} hasn't {path}: {files[name]}")
        for name in files:
            own = {f for f in files[name] if "/share/licenses/" not in f and "/share/doc" not in f}
            for other in files:
                both = own & set(files[other]) if other != name else set()
                expect(not both, f"{name} and {other} both have {both}")
        expect(printed("rpm", "-qp", "--configfiles", packages["kvleased"]).split() == ["/etc/kvlease/kvleased.conf"],
               "the configuration isn't marked as one")
        requires = printed("rpm", "-qp", "--requires", packages["kvleased"])
        expect("kvlease-tools" in requires and "libuv.so.1" in requires, f"kvleased requires {requires}")
        subprocess.run(["rpm2archive", packages["kvleased"]], check=True)  # writes FILE.rpm.tgz beside it
        with tarfile.open(f"{packages['kvleased']}.tgz") as archive:
            archive.extractall(folder)
        said = printed(folder / "usr/sbin/kvleased", "--check-config", "--config", folder / "etc/kvlease/kvleased.conf")
        expect(said == "ok\n", f"kvleased says {said}")
    print("RPM packages: ok")
    return 0


sys.exit(main())
