#!/bin/sh
# Runs a command over the driver double: over-double.sh DIR_OF_LIBCUDA [KERNELS.so] -- COMMAND...
# KERNELS.so: what the double runs instead of kernels.ptx.
set -eu

FAKECUDA_DIR=$(mktemp -d)
export FAKECUDA_DIR
trap 'rm -rf "$FAKECUDA_DIR"' EXIT
trap 'exit 130' INT TERM
export LD_LIBRARY_PATH="$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export FAKECUDA_MEMORY="${FAKECUDA_MEMORY:-2147483648}"
shift
if [ "$1" != -- ]; then
        export KVL_GPU_FAKE_KERNELS="$1"
        shift
fi
shift
"$@"
