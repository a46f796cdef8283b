#!/bin/sh
# Builds the RPM packages of this tree: kvleased, kvlease-tools, kvlease-events, kvlease-exchange, libkvlease,
# libkvlease-devel, and their source.
#
#   sh packaging/rpm.sh [--nodeps] DIRECTORY
#
# They end in DIRECTORY, which is made where it is missing; the tree stays as it is. rpmbuild must be
# there. --nodeps: what is needed to build was installed by another package manager (as on Debian).
# Exit status: 0 built, 1 not, 2 wrong command line.
set -eu

# shellcheck source=SCRIPTDIR/package.sh
. "$(dirname "$0")/package.sh"
package_begin --nodeps "$@"

mkdir "$work/SOURCES"
package_copy "$work/kvlease-$version"
tar -C "$work" -czf "$work/SOURCES/kvlease-$version.tar.gz" "kvlease-$version"
# The source package is built elsewhere, too: it has the version inside.
{
        echo "%global kvlease_version $version"
        cat "$top/packaging/rpm/kvlease.spec"
} >"$work/kvlease.spec"
rpmbuild -ba $option --define "_topdir $work" --define 'debug_package %{nil}' "$work/kvlease.spec"
cp "$work"/RPMS/*/*.rpm "$work"/SRPMS/*.rpm "$out"
