#!/bin/sh
# The oracle itself: the decoder's logits must not depend on how K and V are laid out in pages, and must
# depend on the prompt and on the weights. Usage: decoder-layouts.sh DECODER TEXT
set -eu

decoder=$1
text=$2
changed=$(mktemp)
trap 'rm -f "$changed"' EXIT

logits() {
        "$decoder" --no-daemon --json --max-prompt 333 --generate 40 "$@" |
                sed 's/.*"logits": "\([0-9a-f]*\)".*/\1/'
}

expected=$(logits "$text")
[ "${#expected}" -eq 16 ] || { echo "no digest: $expected"; exit 1; }
failed=0

for planes in block layer; do
        for page_tokens in 1 7 16 64 512; do
                found=$(logits --planes "$planes" --page-tokens "$page_tokens" "$text")
                if [ "$found" != "$expected" ]; then
                        echo "planes $planes, $page_tokens tokens a page: $found, expected $expected"
                        failed=1
                fi
        done
done

# One byte, at the very beginning, 332 tokens and many pages before the logits.
{ printf '#'; tail -c +2 "$text"; } >"$changed"
if [ "$(logits "$changed")" = "$expected" ]; then
        echo "the logits don't depend on the first byte of the prompt"
        failed=1
fi
if [ "$(logits --model-seed 2 "$text")" = "$expected" ]; then
        echo "the logits don't depend on the weights"
        failed=1
fi
exit $failed
