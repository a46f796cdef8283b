#!/bin/sh
# Validates packaging/kubernetes by Kubernetes' own schemas, which kubernetes-validate of PyPI brings, and
# packaging/compose by the Compose Specification's, of docker-compose of PyPI; and has check-helm.py try
# packaging/helm with Helm, of helm-python-sdk of PyPI:
#   check-kubernetes.sh SOURCE KVLEASED
# 1.30 is the oldest release that has all fields that are used.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
if ! { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q kubernetes-validate==1.37.0 helm-python-sdk==0.2.2 &&
        "$work/venv/bin/pip" install -q --no-deps --target "$work/compose" docker-compose==1.29.2; } \
        >"$work/log" 2>&1; then
        tail -n 2 "$work/log"
        echo "skipped: kubernetes-validate, helm-python-sdk and docker-compose can't be had from PyPI here"
        exit 77
fi
for release in 1.30 1.37; do
        "$work/venv/bin/kubernetes-validate" --strict -k "$release" "$1"/packaging/kubernetes/*.yaml
done
"$work/venv/bin/python" "$1/tests/tools/check-helm.py" "$1" "$2"
# The program is too old for today's Python; the schema is what is wanted of it.
"$work/venv/bin/python" - "$work/compose/compose/config/compose_spec.json" "$1"/packaging/compose/*.yaml <<'END'
import json
import sys

import jsonschema
import yaml

with open(sys.argv[1]) as file:
    schema = json.load(file)
for path in sys.argv[2:]:
    with open(path) as file:
        jsonschema.validate(yaml.safe_load(file), schema)
END
