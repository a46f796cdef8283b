#!/bin/sh
# Builds libkvlease.a for the package: sh build-lib.sh TREE DIRECTORY OUT. In DIRECTORY, which is made.
set -eu

tree=$1
directory=$(mkdir -p "$2" && cd "$2" && pwd)/tree
[ -e "$directory/build.ninja" ] || meson setup "$directory" "$tree" --buildtype=release \
        -Dtests=disabled -Dman=disabled
ninja -C "$directory" client/lib/libkvlease.a
cp "$directory/client/lib/libkvlease.a" "$3"
