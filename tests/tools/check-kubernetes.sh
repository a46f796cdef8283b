#!/bin/sh
# Validates packaging/kubernetes by Kubernetes' own schemas, which kubernetes-validate of PyPI brings:
#   check-kubernetes.sh SOURCE
# 1.30 is the oldest release that has all fields that are used.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
if ! { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q kubernetes-validate==1.37.0; } \
        >"$work/log" 2>&1; then
        tail -n 2 "$work/log"
        echo "skipped: kubernetes-validate can't be had from PyPI here"
        exit 77
fi
for release in 1.30 1.37; do
        "$work/venv/bin/kubernetes-validate" --strict -k "$release" "$1"/packaging/kubernetes/*.yaml
done
