#!/bin/sh
# One target under libFuzzer for a moment, for a minute with KVL_FULL=1: fuzz.sh TARGET CORPUS
# What breaks it stays in the working directory, which is the build directory.
set -eu

seconds=3
[ "${KVL_FULL-}" != 1 ] || seconds=60
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT TERM
# New inputs go to the first directory; those that are kept are only read. A finding's status would be
# 77, which is a skipped test's.
"$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -error_exitcode=1 -artifact_prefix=./ "$new" "$2"
