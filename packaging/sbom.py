#!/usr/bin/env python3
"""Prints a CycloneDX description of a release: its files, and the libraries that they use.

    sbom.py VERSION DIRECTORY

The directory has the files of packaging/release.sh. Libraries are Debian's packages, in the
versions of this machine: those on which the .deb files depend, and those whose code the wheel has
inside. Set SOURCE_DATE_EPOCH for a result that doesn't change. Exit status: 0, or 1 if a file or a
package can't be read.
"""

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path
from urllib.parse import quote


def _printed(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _used(path):
    """Names of the packages with a file's libraries: dynamic ones of a .deb file, static ones of
    a wheel, which has their licences."""
    if path.suffix == ".deb":
        depends = _printed("dpkg-deb", "-f", path, "Depends").split(",")
        return sorted({d.split()[0] for d in depends if re.match(r" ?lib(?!kvlease)", d)})
    if path.suffix == ".whl":
        names = "\n".join(zipfile.ZipFile(path).namelist())
        return re.findall(r"^kvlease/licenses/(.*)\.txt$", names, re.MULTILINE)
    return []


def _file(path):
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {"type": "file", "bom-ref": path.name, "name": path.name, "hashes": hashes}


def _library(name):
    version, arch = _printed("dpkg-query", "-W", "-f", "${Version} ${Architecture} ", name).split()[
        :2
    ]
    release = re.search(r'^VERSION_ID="?([\d.]+)', Path("/etc/os-release").read_text(), re.M)[1]
    purl = f"pkg:deb/debian/{name}@{quote(version)}?arch={arch}&distro=debian-{release}"
    return {"type": "library", "bom-ref": name, "name": name, "version": version, "purl": purl}


def main():
    """The description of the directory of the command line."""
    version, directory = sys.argv[1], Path(sys.argv[2])
    own = "SHA256SUMS", f"kvlease-{version}.cdx.json"
    paths = sorted(p for p in directory.iterdir() if p.is_file() and p.name not in own)
    if not paths:
        sys.exit(
            f"sbom.py: {directory} has no files: run other steps of packaging/release.sh first"
        )
    uses = {path.name: _used(path) for path in paths}
    components = [*map(_file, paths), *map(_library, sorted(set().union(*uses.values())))]
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", directory.stat().st_mtime))
    time = datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    licenses = [{"license": {"id": "Apache-2.0"}}]
    kvlease = {"type": "application", "bom-ref": "kvlease", "name": "kvlease", "version": version}
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(components))}",
        "metadata": {"timestamp": time, "component": {**kvlease, "licenses": licenses}},
        "components": components,
        "dependencies": [
            {"ref": "kvlease", "dependsOn": list(uses)},
            *({"ref": name, "dependsOn": used} for name, used in uses.items() if used),
        ],
    }
    print(json.dumps(bom, indent=1))


if __name__ == "__main__":
    main()
