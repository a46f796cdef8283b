#!/bin/sh
# Builds the wheel of the Python package: one for Python 3.11 and later, with libkvlease inside.
#
#   sh packaging/wheel.sh DIRECTORY
#
# It ends in DIRECTORY, which is made where it is missing. Needs what install-deps.sh build installs, python3.11
# with venv (or python3, where that is newer: then the wheel is for that version and later), and the
# package index for the build tools that client/python/pyproject.toml pins. libprotobuf-c and libcrypto
# are linked in, with their licences beside them: the wheel needs nothing but libc (that of this host,
# or a newer one).
# Exit status: 0 built, 1 not, 2 wrong command line.
set -eu

usage() {
        sed -n 's/^# \{0,1\}//; 2,11p' "$0"
}

case "$#:${1-}" in
1:-h | 1:--help)
        usage
        exit 0
        ;;
1:-* | 0:* | [2-9]*)
        usage >&2
        exit 2
        ;;
esac

# shellcheck source=SCRIPTDIR/package.sh
. "$(dirname "$0")/package.sh"
package_begin "$1"

# It is named after the Python that builds it, which may be a shim that doesn't start.
python=python3
if python3.11 -c '' 2>/dev/null; then
        python=python3.11
fi
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" wheel --disable-pip-version-check --no-deps \
        --config-settings=build-dir="$work/build" --wheel-dir "$work/out" "$top/client/python"
cp "$work"/out/*.whl "$out"
