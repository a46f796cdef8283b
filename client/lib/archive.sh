#!/bin/sh
# Makes libkvlease.a: sh archive.sh OUT ARCHIVE... (everything that libkvlease.so is made of).
#
# One object, in which what libkvlease.so keeps to itself is local: a program that is linked
# statically has no more of our names than one that isn't. LD, OBJCOPY and AR may name other tools.
set -eu

out=$1
shift
object=$(mktemp)
trap 'rm -f "$object"' EXIT
"${LD:-ld}" -r -o "$object" --whole-archive "$@" --no-whole-archive
"${OBJCOPY:-objcopy}" --localize-hidden "$object"
rm -f "$out"
cp "$object" "$out.o"
"${AR:-ar}" rcsD "$out" "$out.o"
rm -f "$out.o"
