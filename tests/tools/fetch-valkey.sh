#!/bin/sh
# Valkey's server, of Debian 12's backports, in a folder that is kept for later runs. Nothing is installed, and
# apt's own lists stay as they are: the package is fetched with lists of its own, signed like all of Debian's, and
# unpacked.
#
#   sh tests/tools/fetch-valkey.sh
#
# Prints the program's path, in $XDG_CACHE_HOME/kvlease (~/.cache/kvlease). Like redis-tools, the package
# valkey-tools has the server under another name, and starts no service.
# Exit status: 0 it is there, 1 not, 2 wrong command line.
set -eu

if [ $# -gt 0 ]; then
        [ "$1" = --help ] || [ "$1" = -h ] || set -- wrong
        sed -n 's/^# \{0,1\}//; 2,10p' "$0"
        [ "$1" != wrong ] || exit 2
        exit 0
fi
release=bookworm-backports
kept=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/kvlease/valkey-$release/valkey-server
if [ -x "$kept" ]; then
        echo "$kept"
        exit 0
fi

# The mirror that this machine has the rest of Debian 12 from.
mirror=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 2>/dev/null |
        sed -n 's/^bookworm main //p' | head -n 1) || mirror=
if [ -z "$mirror" ]; then
        echo "fetch-valkey: apt knows no mirror of Debian 12 (bookworm main) here" >&2
        exit 1
fi
mkdir -p "${kept%/*}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$work/lists/partial" "$work/archives/partial"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$work/sources.list"

fetch() {
        apt-get -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
                -o Dir::State::lists="$work/lists" -o Dir::Cache="$work" -o Dir::Cache::archives="$work/archives" \
                -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=3 "$@"
}

cd "$work"
if ! { fetch update && fetch download valkey-tools; } >"$work/log" 2>&1; then
        cat "$work/log" >&2
        echo "fetch-valkey: valkey-tools can't be had from $release of $mirror" >&2
        exit 1
fi
dpkg -x valkey-tools_*.deb unpacked
cp unpacked/usr/bin/valkey-check-rdb "$work/valkey-server"
if ! "$work/valkey-server" --version >&2; then
        echo "fetch-valkey: what was fetched doesn't run here" >&2
        exit 1
fi
mv "$work/valkey-server" "$kept"
echo "$kept"
