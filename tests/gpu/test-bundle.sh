#!/bin/sh
# The bundle: that it is made, small and runs without the build directory; over the driver double
# with both reports in the end. Usage: test-bundle.sh BUILD_DIR DIR_OF_LIBCUDA KERNELS.so
set -eu

build=$1
double=$2
kernels=$3
decoder_kernels=$build/tests/integration/decoder-module # of tests/integration/meson.build
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

die() {
        echo "$*" >&2
        cat "$work/log" >&2 2>/dev/null || true
        exit 1
}

# Of a bundle by path, the libraries of the build directory aren't found.
sh "$here/bundle.sh" "$build" "$work/out.tar.gz" >"$work/log" 2>&1 || die "bundle.sh failed"
tar -C "$work" -xf "$work/out.tar.gz"
bundle=$work/kvlease-gpu
for file in run.sh bin/kvleased bin/kvl-gpu-facts lib/libkvlease.so.0 tests/test_share tests.list \
        python/gpu/engine.py python/engines/transformers/worker.py; do
        [ -e "$bundle/$file" ] || die "$file is not in the bundle"
done
for file in "$bundle"/lib/*; do
        case "$file" in
        */libc.so* | */ld-linux* | */libcuda*) die "$file belongs to the host" ;;
        esac
done
# What the programs need is in it, but for the host's glibc.
for file in "$bundle"/bin/* "$bundle"/tests/*; do
        outside=$(LD_LIBRARY_PATH=$bundle/lib ldd "$file" | sed -n 's/.* => \([^ ]*\).*/\1/p' |
                grep -v -e "^$bundle/lib/" -e '/lib\(c\|m\|pthread\|dl\|rt\)\.so\.[0-9]*$' || true)
        [ -z "$outside" ] || die "$file needs $outside"
done

# Without a driver: a sentence, and nothing left behind.
if ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
        status=0
        env -u LD_LIBRARY_PATH "$bundle/run.sh" --quick --out "$work/none" >"$work/log" 2>&1 || status=$?
        [ "$status" = 77 ] || die "without a driver run.sh ended with $status"
        grep -q 'no CUDA driver is installed' "$work/log" || die "nothing says why it was skipped"
        [ ! -e "$work/none" ] || die "it left a report"
fi

mkdir "$work/fakecuda"
status=0
FAKECUDA_DIR=$work/fakecuda FAKECUDA_MEMORY=4294967296 KVL_GPU_FAKE_KERNELS=$kernels \
        KVLEASE_DECODER_KERNELS=$decoder_kernels LD_LIBRARY_PATH=$double \
        "$bundle/run.sh" --quick --out "$work/report" >"$work/log" 2>&1 || status=$?
tail -n 50 "$work"/report/raw/*.log >>"$work/log" 2>/dev/null || true
[ "$status" = 0 ] || die "over the double run.sh ended with $status"
python3 - "$work/report/report.json" >>"$work/log" 2>&1 <<'PYTHON' || die "report.json is wrong"
import json
import sys

report = json.load(open(sys.argv[1]))
assert report["device"]["is_double"], report["device"]
facts = {f["id"]: f["outcome"] for f in report["facts"]}
assert facts["T1"] == facts["T20"] == "verified" and facts["T17"] == "skipped", facts
assert "failed" not in facts.values(), facts
assert [b["device"] for b in report["benchmarks"]] == ["fakecuda, cudaipc", "fakecuda, vmm"]
for bench in report["benchmarks"]:
    assert len(bench["results"]) > 10, bench
    assert all(row["value"] is None for row in bench["results"]), "the double's figures"
ran = {(s["kind"], s["name"], s["transport"]): s["outcome"] for s in report["steps"]}
for transport in "vmm", "cudaipc":
    assert ran["test", "share", transport] == "passed", ran
assert ran["decoder", "daemon", "vmm"] == "passed", ran
reused = [run["reused"] for run in report["decoder"]]
assert len(reused) == 3 and reused[0] == reused[1] == 0 and reused[2] > 0, reused
PYTHON
grep -q '^\*\*The device is fakecuda' "$work/report/report.md" || die "report.md doesn't name the double"
grep -q '^| T20 |' "$work/report/report.md" || die "report.md lacks facts"
