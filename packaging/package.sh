# shellcheck shell=sh
# What deb.sh, rpm.sh, wheel.sh, demo.sh and tests/run.sh have in common; they source it.

# Of builds in a clone, so that demo.sh and tests/run.sh share one. Lines and functions, for what sanitizers and
# valgrind say: all of -g takes half as long again.
# shellcheck disable=SC2034
symbols='-Ddebug=false -Dc_args=-g1'

# package_usage: the comment at the script's beginning.
package_usage() {
        sed -n '2,/^set -eu/{/^set/d;s/^# \{0,1\}//;p;}' "$0"
}

# package_begin OPTION WORD...: the words of the script are a DIRECTORY, before which OPTION may stand ('': none). Sets
# $option to OPTION where it does, else to nothing; $top, the source tree; $version, its version; $out, the directory, which
# it makes; $work, a temporary directory that is removed when the script ends; and SOURCE_DATE_EPOCH, the time in the
# packages. Ends the script with 0 after --help, and with 2 after a wrong command line.
package_begin() {
        known=$1
        option=
        shift
        while [ -n "$known" ] && [ "${1-}" = "$known" ]; do
                option=$1
                shift
        done
        case "$#:${1-}" in
        *:-h | *:--help)
                package_usage
                exit 0
                ;;
        1:-* | 0:* | [2-9]*)
                package_usage >&2
                exit 2
                ;;
        esac
        top=$(cd "$(dirname "$0")/.." && pwd)
        version=$(cat "$top/VERSION")
        export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(stat -c %Y "$top/CHANGELOG.md")}"
        mkdir -p "$1"
        out=$(cd "$1" && pwd)
        work=$(mktemp -d)
        trap 'rm -rf "$work"' EXIT
        trap 'exit 130' INT TERM
}

# package_copy DIRECTORY: makes it, with all that belongs to the source and no build directory.
package_copy() {
        mkdir "$1"
        (cd "$top" && cp -a CHANGELOG.md CONTRIBUTING.md LICENSE README.md SECURITY.md VERSION meson.build meson_options.txt base client daemon docs gpu \
                packaging policy proto tests "$1")
}
