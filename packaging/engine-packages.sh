#!/bin/sh
# Pinned Python packages, an engine among them, in a folder that is kept for later runs: for the tests
# (tests/run.sh, part engines) and for demo.sh --engine.
#
#   sh packaging/engine-packages.sh PYTHON NAME DOWNLOAD DISK REQUIREMENTS
#
# PYTHON is one with pip, REQUIREMENTS a file with all packages, which are installed without what they
# depend on; DOWNLOAD and DISK are MB, about. Prints the folder, in $XDG_CACHE_HOME/kvlease
# (~/.cache/kvlease), another one where anything changes: old ones are yours to delete. PyPI's torch is
# the one for CUDA: what else it wants of CUDA is left out, 3 GB, and replaced
# (client/python/tests/cuda_stubs.py, which needs gcc and binutils). A torch that can't be imported isn't kept.
# Exit status: 0 it is there, 1 not, 2 wrong command line.
set -eu

case "$#:${1-}" in
1:-h | 1:--help)
        sed -n 's/^# \{0,1\}//; 2,12p' "$0"
        exit 0
        ;;
5:*) ;;
*)
        sed -n 's/^# \{0,1\}//; 2,12p' "$0" >&2
        exit 2
        ;;
esac
python=$1
name=$2
download=$3
disk=$4
requirements=$5
stubs=$(dirname "$0")/../client/python/tests/cuda_stubs.py
# What has no wheel.
library=$(dirname "$0")/llama-library.sh
built=$(sed -n 's/^# built: llama-cpp-python==//p' "$requirements")
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/kvlease
kept=$cache/$name-$({
        cat "$requirements" "$stubs" ${built:+"$library"}
        "$python" --version
} | cksum | cut -d ' ' -f 1)
if [ -e "$kept" ]; then
        echo "$kept"
        exit 0
fi

for tool in gcc readelf nm; do
        command -v "$tool" >/dev/null || {
                echo "$name needs $tool: sh packaging/install-deps.sh build" >&2
                exit 1
        }
done
echo "installing $name in $kept: $download MB from the package index, $disk MB on disk" >&2
mkdir -p "$cache"
free=$(($(df -Pk "$cache" | awk 'END { print $4 }') / 1000))
if [ "$free" -lt "$disk" ]; then
        echo "$name needs $disk MB in $cache (XDG_CACHE_HOME moves it), where $free MB are free" >&2
        exit 1
fi
partial=$kept.$$
trap 'rm -rf "$partial"' EXIT
trap 'exit 130' INT TERM HUP
if ! "$python" -m pip install -q --disable-pip-version-check --no-deps --no-cache-dir \
        --target "$partial" -r "$requirements" >&2; then
        echo "the packages of $requirements can't be had from the package index" >&2
        exit 1
fi
if [ -n "$built" ]; then
        sh "$library" "$python" "$built" "$partial" || exit 1
fi
if [ -e "$partial/torch" ]; then
        "$python" "$stubs" "$partial" >&2
        PYTHONPATH=$partial "$python" -B -c 'import torch' >&2 || {
                echo "torch as it was installed for $name can't be imported, see above: it isn't kept" >&2
                exit 1
        }
fi
# Another run may have made it meanwhile.
mv -T "$partial" "$kept" 2>/dev/null || [ -e "$kept" ]
echo "$kept"
