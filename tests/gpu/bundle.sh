#!/bin/sh
# Packs the GPU suite for a host with an NVIDIA driver and glibc 2.36 or newer, and nothing else.
#
#   sh tests/gpu/bundle.sh [BUILD_DIR] [OUT]    BUILD_DIR: build; OUT: kvlease-gpu.tar.gz, or a folder
#
# There: tar xf kvlease-gpu.tar.gz && sh kvlease-gpu/run.sh
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$top/build}
out=${2:-kvlease-gpu.tar.gz}
max_glibc=2.36           # Debian 12
max_bytes=$((50 << 20))  # what is easily carried; specification
name=kvlease-gpu

die() {
        echo "bundle.sh: $*" >&2
        exit 1
}

[ -e "$build/build.ninja" ] || die "$build is no build directory: meson setup $build && ninja -C $build"
build=$(cd "$build" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case "$out" in
*.tar.gz) dir=$work/$name ;;
*)
        dir=$out
        [ ! -e "$dir" ] || [ -z "$(ls -A "$dir")" ] || die "$dir isn't empty"
        ;;
esac
mkdir -p "$dir/bin" "$dir/tests" "$dir/lib"

# add FOLDER FILE: a program, without its symbols.
add() {
        [ -x "$2" ] || die "$2 is missing: ninja -C $build"
        strip --strip-unneeded -o "$1/$(basename "$2")" "$2"
}

for program in daemon/server/kvleased client/ctl/kvleasectl client/examples/decoder \
        client/examples/session \
        tests/integration/kvl-worker tests/integration/kvl-worker-fault \
        tests/bench/kvlease-bench tests/gpu/kvl-gpu-facts tests/gpu/kvl-gpu-report; do
        add "$dir/bin" "$build/$program"
done
# The tests that have a mode for a device, and in which: lines "TRANSPORT NAME".
meson introspect "$build" --tests >"$work/tests.json" || die "meson doesn't tell the tests of $build"
python3 - "$work/tests.json" >"$dir/tests.list" <<'PYTHON' || die "the tests of $build can't be read"
import json
import re
import sys

for test in json.load(open(sys.argv[1])):
    match = re.fullmatch("integration-(.*)-(vmm|cudaipc)", test["name"])
    if match:
        print(match[2], match[1])
PYTHON
[ -s "$dir/tests.list" ] || die "$build has no test for a device: the driver double wasn't built"
cut -d ' ' -f 2 "$dir/tests.list" | sort -u >"$work/tests"
while read -r test; do
        add "$dir/tests" "$build/tests/integration/test_$test"
done <"$work/tests"

# Every library but glibc's own and the driver. The programs look for them by LD_LIBRARY_PATH, which
# comes before the path of the build directory that they hold.
for program in "$dir"/bin/* "$dir"/tests/*; do
        LD_LIBRARY_PATH=$build/client/lib ldd "$program" || die "ldd $program"
done >"$work/ldd"
! grep 'not found' "$work/ldd" >&2 || die "libraries are missing here"
sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' "$work/ldd" | sort -u >"$work/libraries"
while read -r library; do
        case "$(basename "$library")" in
        libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | \
                libutil.so.* | libanl.so.* | libnsl.so.1 | ld-linux* | libcuda.so.*) continue ;;
        esac
        strip --strip-unneeded -o "$dir/lib/$(basename "$library")" "$library"
done <"$work/libraries"

for file in "$dir"/bin/* "$dir"/tests/* "$dir"/lib/*; do
        needs=$(objdump -T "$file" | sed -n 's/.*(\{0,1\}GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -n 1)
        [ "$(printf '%s\n' "${needs:-0}" "$max_glibc" | sort -V | tail -n 1)" = "$max_glibc" ] ||
                die "$file needs glibc $needs; hosts have $max_glibc: build on Debian 12"
done

# Engines of Python, for hosts that have them, in the folders that the tree has.
for file in gpu/engine.py engines/support.py engines/models.py \
        engines/transformers/worker.py engines/vllm/worker.py; do
        mkdir -p "$dir/python/$(dirname "$file")"
        cp "$top/tests/$file" "$dir/python/$file"
done

cp "$top/tests/gpu/run.sh" "$top/LICENSE" "$dir/"
chmod 755 "$dir/run.sh"
bytes=$(du -sb "$dir" | cut -f 1)
[ "$bytes" -le "$max_bytes" ] || die "the bundle has $bytes bytes; $max_bytes are allowed"
case "$out" in
*.tar.gz) tar -C "$work" -czf "$out" "$name" ;;
esac
echo "$out: $((bytes >> 10)) KiB unpacked; on the host: sh run.sh"
