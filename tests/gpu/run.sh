#!/bin/sh
# Tests and measures kvlease on this host's GPU, from the bundle that tests/gpu/bundle.sh makes.
#
#   sh run.sh                under 9 minutes
#   sh run.sh --quick        under 2 minutes: does it work at all
#   sh run.sh --seconds N    in at most some N seconds instead; what doesn't fit is named as skipped
#   sh run.sh --out DIR      where the reports go (default: report-DATE beside this file)
#
# Leaves DIR/report.md and DIR/report.json, and what they were made of in DIR/raw. KVL_DEVICE_UUID
# chooses a GPU, else the first is taken; it should be idle. Engines are tried where python3 (or
# $KVL_PYTHON) has torch, transformers or vLLM, and kvlease's wheel (packaging/wheel.sh). Exit status: 0 everything ran, 1
# something failed (a fact that is refuted isn't a failure), 77 there is no GPU.
set -u

here=$(cd "$(dirname "$0")" && pwd)
case "$here" in
*[[:space:]]*)
        echo "run.sh: the path of this folder has blanks: move it" >&2
        exit 1
        ;;
esac
quick=
seconds=
out=
while [ $# -gt 0 ]; do
        case "$1" in
        --quick) quick=--quick ;;
        --out)
                out=${2:?run.sh: --out needs a directory}
                shift
                ;;
        --seconds)
                seconds=${2:?run.sh: --seconds needs a number}
                case "$seconds" in
                *[!0-9]* | '')
                        echo "run.sh: --seconds needs a number, not $seconds" >&2
                        exit 1
                        ;;
                esac
                shift
                ;;
        -h | --help)
                sed -n '2,/^set -u/{/^set/d;s/^# \{0,1\}//;p;}' "$0"
                exit 0
                ;;
        *)
                echo "run.sh: there is no option $1: sh run.sh --help lists them" >&2
                exit 1
                ;;
        esac
        shift
done
out=${out:-$here/report-$(date +%Y%m%d-%H%M%S)}
started=$(date +%s)
# Less than the times promised above, for what has to be ended by force.
total=500
[ -z "$quick" ] || total=100
total=${seconds:-$total}
end=$((started + total))

# Of our programs only: the host's own keep their libraries.
ours="env LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
ours="$ours KVLEASED=$here/bin/kvleased KVLEASECTL=$here/bin/kvleasectl"
ours="$ours KVL_WORKER=$here/bin/kvl-worker KVL_WORKER_FAULT=$here/bin/kvl-worker-fault"
ours="$ours KVL_DECODER=$here/bin/decoder KVL_SESSION=$here/bin/session"

mkdir -p "$out/raw" || exit 1
out=$(cd "$out" && pwd)
raw=$out/raw
: >"$raw/steps"

# shellcheck disable=SC2086 # words
timeout -k 5 70 $ours "$here/bin/kvl-gpu-facts" --probe >"$raw/device.json"
status=$?
if [ "$status" -ne 0 ]; then
        rm -f "$raw/device.json" "$raw/steps"
        rmdir "$raw" "$out" 2>/dev/null
        [ "$status" -ne 77 ] || echo "run.sh: skipped: this host has no GPU with a driver" >&2
        exit "$status"
fi
uuid=$(sed -n 's/.*"uuid": "\(.*\)".*/\1/p' "$raw/device.json")
ours="$ours KVL_DEVICE_UUID=$uuid"
# The driver's double makes a directory per test, and no figures.
case "$uuid" in
GPU-fa4ecada-*) is_double=1 ;;
*)
        is_double=0
        ours="$ours KVL_DEVICE_REAL=1"
        ;;
esac

{
        echo "date=$(date -u +%Y-%m-%dT%H:%M:%SZ)"
        echo "kernel=$(uname -srm)"
        echo "cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(getconf _NPROCESSORS_ONLN) cores"
        echo "glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null)"
        echo "kvlease=$($ours "$here/bin/kvleasectl" --version 2>/dev/null | head -n 1)"
        [ ! -r /proc/driver/nvidia/version ] ||
                echo "kernel_module=$(sed -n 's/^NVRM version: *//p' /proc/driver/nvidia/version)"
        if [ "$is_double" = 0 ] && command -v nvidia-smi >/dev/null; then
                echo "persistence=$(timeout 20 nvidia-smi --id="$uuid" --query-gpu=persistence_mode --format=csv,noheader)"
                timeout 20 nvidia-smi -q --id="$uuid" >"$raw/nvidia-smi" 2>&1
        fi
        [ ! -e "${CUDA_MPS_PIPE_DIRECTORY:-/tmp/nvidia-mps}" ] || echo "mps=there is a control pipe"
        echo "quick=${quick:+1}"
} >"$raw/host"

# record KIND NAME TRANSPORT STATUS SECONDS LOG
record() {
        printf '%s\t%s\t%s\t%d\t%d\n' "$1" "$2" "$3" "$4" "$5" >>"$raw/steps"
        case "$4" in
        0) echo "ok       $1 $2 $3" ;;
        77) echo "skipped  $1 $2 $3" ;;
        *) echo "FAILED   $1 $2 $3 ($4; see $6)" ;;
        esac
}

# step KIND NAME TRANSPORT SECONDS COMMAND...: its output goes to raw/KIND-NAME-TRANSPORT.log, where
# it isn't named as another file by $stdout.
stdout=
step() {
        kind=$1 name=$2 transport=$3 limit=$4
        shift 4
        log=$raw/$kind-$name-$transport.log
        left=$((end - $(date +%s)))
        [ "$limit" -le "$left" ] || limit=$left
        begun=$(date +%s)
        if [ "$limit" -lt 2 ]; then
                echo "no time is left" >"$log"
                result=77
        else
                # shellcheck disable=SC2086
                timeout -k 5 "$limit" $ours "$@" >"${stdout:-$log}" 2>"$log.err"
                result=$?
                [ -z "$stdout" ] || : >"$log"
                cat "$log.err" >>"$log"
        fi
        rm -f "$log.err"
        stdout=
        record "$kind" "$name" "$transport" "$result" $(($(date +%s) - begun)) "$log"
}

# ---- the decoder: twice on the same text, and once without a daemon --------------------------------

demo_config() {
        cat <<CONFIG
[daemon]
devices = $uuid
runtime_dir = $demo/run
state_dir = $demo/state
[device $uuid]
memory = 512MiB
extent = 16MiB
[tenant demo]
limit = 512MiB
CONFIG
}

decode() {
        stdout=$raw/decoder-$1
        step decoder "$1" vmm 60 "$here/bin/decoder" --json --page-tokens=16 \
                --max-prompt="$prompt" --generate=4 "$2" "$here/LICENSE"
        cat "$raw/decoder-$1" >>"$raw/decoder" 2>/dev/null
}

daemon=
demo=
trap '[ -z "$daemon" ] || kill "$daemon" || true; [ -z "$demo" ] || rm -rf "$demo"' EXIT
trap 'exit 130' INT TERM

demo() {
        demo=$(mktemp -d) || return
        prompt=2048
        [ -z "$quick" ] || prompt=256
        mkdir "$demo/run" "$demo/state"
        demo_config >"$demo/kvlease.conf"
        # shellcheck disable=SC2086
        timeout -k 5 240 $ours "$here/bin/kvleased" --config "$demo/kvlease.conf" \
                >"$raw/decoder-daemon.log" 2>&1 &
        daemon=$!
        socket=$demo/run/t/demo/sock
        for _ in $(seq 100); do
                [ ! -S "$socket" ] || break
                sleep 0.1
        done
        # Host memory, so that reuse has something to be compared with.
        decode alone --no-daemon
        decode cold "--socket=$socket"
        decode warm "--socket=$socket"
        kill -TERM "$daemon"
        wait "$daemon"
        record decoder daemon vmm $? 0 "$raw/decoder-daemon.log"
        daemon=
        rm -rf "$demo"
        demo=
}

# ---- engines of Python -----------------------------------------------------------------------------

# They keep to the host's own libraries.
engines() {
        python=${KVL_PYTHON:-python3}
        if ! "$python" -c 'import torch, kvlease' >"$raw/engine-all-vmm.log" 2>&1; then
                echo "run.sh: $python has no torch, or no kvlease: nothing of engines is tried" >&2
                record engine all vmm 77 0 "$raw/engine-all-vmm.log"
                return
        fi
        step engine all vmm 180 env LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}" \
                "$python" "$here/python/gpu/engine.py" $quick --build "$here" --out "$raw/engine.json"
}

# ---- everything ------------------------------------------------------------------------------------

facts_limit=$((total * 4 / 10))
bench_limit=60
test_limit=90
if [ -n "$quick" ]; then
        facts_limit=60 bench_limit=30 test_limit=20
fi
step facts all - "$facts_limit" "$here/bin/kvl-gpu-facts" $quick --out "$raw/facts.json"
for transport in vmm cudaipc; do
        stdout=$raw/bench-gpu-$transport
        step bench gpu "$transport" "$bench_limit" KVL_DEVICE="$transport" "$here/bin/kvlease-bench" \
                $quick --json gpu
done
demo
engines
# Several lanes of tests side by side: they wait more than they compute.
lanes=$(($(getconf _NPROCESSORS_ONLN) / 2))
[ "$lanes" -le 4 ] || lanes=4
[ "$lanes" -ge 1 ] || lanes=1
for lane in $(seq "$lanes"); do
        sed -n "$lane~${lanes}p" "$here/tests.list" | while read -r transport name; do
                [ -z "$quick" ] || [ "$name" = share ] || continue
                step test "$name" "$transport" "$test_limit" KVL_DEVICE="$transport" \
                        "$here/tests/test_$name" </dev/null
        done &
done
wait

echo "seconds=$(($(date +%s) - started))" >>"$raw/host"
# shellcheck disable=SC2086
$ours "$here/bin/kvl-gpu-report" "$out" || exit 1
echo "run.sh: $out/report.md, $out/report.json"
! cut -f 4 "$raw/steps" | grep -qv -e '^0$' -e '^77$'
