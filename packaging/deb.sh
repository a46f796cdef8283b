#!/bin/sh
# Builds the Debian packages of this tree: kvleased, kvlease-tools, kvlease-events, kvlease-exchange, libkvlease0,
# libkvlease-llama0, libkvlease-dev, python3-kvlease, kvlease-doc.
#
#   sh packaging/deb.sh [--lintian] DIRECTORY
#
# The script makes DIRECTORY, and puts the packages there, those with symbols for debuggers in DIRECTORY/debug. The tree
# stays as it is: a copy is built, with packaging/debian as its debian/, and the version of VERSION.
# sh packaging/install-deps.sh package installs the tools. --lintian: fails also if lintian finds something.
# Exit status: 0 built, 1 not, 2 wrong command line.
set -eu

# shellcheck source=SCRIPTDIR/package.sh
. "$(dirname "$0")/package.sh"
package_begin --lintian "$@"

if ! dpkg-checkbuilddeps "$top/packaging/debian/control"; then
        echo "deb.sh: sh packaging/install-deps.sh package installs what is missing" >&2
        exit 1
fi

package_copy "$work/kvlease"
cp -a "$top/packaging/debian" "$work/kvlease/debian"
{
        printf 'kvlease (%s) unstable; urgency=medium\n\n' "$version"
        printf '  * CHANGELOG.md describes this version.\n\n -- %s  %s\n' \
                "$(sed -n 's/^Maintainer: //p' "$top/packaging/debian/control")" "$(date -Ru -d "@$SOURCE_DATE_EPOCH")"
} >"$work/kvlease/debian/changelog"

cd "$work/kvlease"
dpkg-buildpackage --build=binary --no-sign
cd ..
if [ -n "$option" ]; then
        # It warns of running as root, which the temporary directory of a build may be.
        lintian --allow-root --fail-on error,warning,info kvlease_*.changes
fi
# kvlease_*.changes and .buildinfo stay behind: they name what is moved to debug/. There may be nothing to move, as with
# DEB_BUILD_OPTIONS=noautodbgsym.
mkdir -p "$out/debug"
find . -maxdepth 1 -name '*-dbgsym_*.*deb' -exec mv -t "$out/debug" {} +
cp ./*.deb "$out"
