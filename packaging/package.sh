# shellcheck shell=sh
# What deb.sh, rpm.sh, wheel.sh, demo.sh and tests/run.sh have in common; they source it.

# Of builds in a clone, so that demo.sh and tests/run.sh share one. Lines and functions, for what sanitizers and
# valgrind say: all of -g takes half as long again.
# shellcheck disable=SC2034
symbols='-Ddebug=false -Dc_args=-g1'

# package_begin DIRECTORY: sets $top, the source tree; $version, its version; $out, the directory, which it makes;
# $work, a temporary directory that is removed when the script ends; and SOURCE_DATE_EPOCH, the time in the packages.
package_begin() {
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
