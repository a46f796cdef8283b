#!/bin/sh
# Builds the RPM packages of this tree: kvleased, kvlease-tools, libkvlease, libkvlease-devel.
#
#   sh packaging/rpm.sh [--nodeps] DIRECTORY
#
# They end in DIRECTORY, which is made where it is missing; the tree stays as it is. rpmbuild must be
# there. --nodeps: what is needed to build was installed by another package manager (as on Debian).
# Exit status: 0 built, 1 not, 2 wrong command line.
set -eu

usage() {
        sed -n 's/^# \{0,1\}//; 2,8p' "$0"
}

nodeps=
while :; do
        case "${1-}" in
        --nodeps) nodeps=--nodeps ;;
        -h | --help)
                usage
                exit 0
                ;;
        *) break ;;
        esac
        shift
done
case "$#:${1-}" in
1:-* | 0:* | [2-9]*)
        usage >&2
        exit 2
        ;;
esac

# shellcheck source=SCRIPTDIR/package.sh
. "$(dirname "$0")/package.sh"
package_begin "$1"

version=$(package_version)
mkdir "$work/SOURCES"
package_copy "$work/kvlease-$version"
tar -C "$work" -czf "$work/SOURCES/kvlease-$version.tar.gz" "kvlease-$version"
rpmbuild -bb $nodeps --define "_topdir $work" --define "kvlease_version $version" \
        --define 'debug_package %{nil}' "$top/packaging/rpm/kvlease.spec"
cp "$work"/RPMS/*/*.rpm "$out"
