#!/bin/sh
# Installs a build as a tarball's user does and tries that beside a systemd of its own (boot.py):
#   install.sh SOURCE BUILD
set -eu
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$out" # becomes /
meson install -C "$2" --no-rebuild --quiet --destdir "$out"
python3 "$1/tests/system/boot.py" --packages --bind tree="$out" --bind source="$1" \
        /kvl/source/tests/system/test_install.py
