#!/bin/sh
# The facts over the driver double: which are found out, and that a hanging or dying one is told so.
# Usage: test-facts.sh KVL-GPU-FACTS
set -eu

facts=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() {
        echo "$*" >&2
        cat "$work/err" >&2 2>/dev/null || true
        exit 1
}

# outcome ID: of the last run
outcome() {
        sed -n "s/^$1  *\([a-z]*\) .*/\1/p" "$work/err"
}

"$facts" --quick --out "$work/facts.json" 2>"$work/err" || die "failed"
for id in T1 T3 T4 T6 T6b T7 T8 T10 T13 T19 T20 T20b; do
        [ "$(outcome $id)" = verified ] || [ "$(outcome $id)" = refuted ] ||
                die "$id is $(outcome $id)"
done
# What the double keeps whatever its speed.
for id in T1 T4 T10 T13 T19 T20 T20b; do
        [ "$(outcome $id)" = verified ] || die "$id is $(outcome $id)"
done
for id in T5 T17; do
        [ "$(outcome $id)" = skipped ] || die "$id is $(outcome $id)"
done
grep -q '"is_double": true' "$work/facts.json" || die "the double isn't told from a GPU"

# A failing call is told with its name; the rest goes on.
! FAKECUDA_FAIL=cuMemExportToShareableHandle:2:1:0 "$facts" --quick T4 T13 2>"$work/err" >/dev/null ||
        die "a failure isn't told by the exit status"
[ "$(outcome T4)" = failed ] || die "T4 is $(outcome T4)"
grep -q 'cuMemExportToShareableHandle: ' "$work/err" || die "the call isn't named"
[ "$(outcome T13)" = verified ] || die "T13 is $(outcome T13)"

# So is one that hangs.
! FAKECUDA_DELAY=cuMemcpyDtoHAsync:60000 "$facts" --quick T13 2>"$work/err" >/dev/null ||
        die "a fact that hangs isn't told"
grep -q 'took more than' "$work/err" || die "a fact that hangs isn't ended"

# Without a GPU it is skipped.
status=0
env -u FAKECUDA_DIR "$facts" --quick T13 >"$work/err" 2>&1 || status=$?
[ "$status" = 77 ] || die "the status without a GPU is $status"
