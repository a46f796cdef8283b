#!/bin/sh
# Writes the expected results of kvleasectl anew: sh tests/golden/update.sh BUILD_DIR. Read the diff.
set -eu

build=${1:?usage: sh tests/golden/update.sh BUILD_DIR}
ninja -C "$build" client/ctl/kvleasectl tests/unit/test_ctl_golden
find "$(dirname "$0")" -type f ! -name update.sh -delete
KVLEASE_GOLDEN_UPDATE=1 "$build"/tests/unit/test_ctl_golden
