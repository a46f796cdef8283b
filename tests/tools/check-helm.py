#!/usr/bin/env python3
"""check-helm.py SOURCE KVLEASED: the Helm chart, rendered by Helm itself (helm-python-sdk of PyPI).

With its tenants it is packaging/kubernetes/kvleased.yaml; with all that it can be told Kubernetes' schemas take it,
and kvleased its configuration; and what it can't do it refuses. check-kubernetes.sh has the packages.
"""
import configparser
import json
import pathlib
import subprocess
import sys
import tempfile

import helm_python
import kubernetes_validate
import yaml

source, kvleased = map(pathlib.Path, sys.argv[1:])
folder = source / "packaging/helm/kvlease"
RELEASES = ("1.30", "1.37")
OURS = ("v1", "apps/v1")  # with schemas of Kubernetes itself
problems = []

TENANTS = {"team-a": {"group": 2001, "class": "pinned", "reserve": "8GiB"}, "team-b": {"group": 2002}}
FULL = {
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "devices": "GPU-5a1e0c2e-7b1f-4a57-9a3c-0b7f5f2e8d11",
    "daemon": {"max_clients": 8192, "compact": False, "log_level": "debug"},
    "deviceOptions": {"GPU-5a1e0c2e-7b1f-4a57-9a3c-0b7f5f2e8d11": {"memory_ratio": 50, "host_memory": "64GiB"}},
    "remotes": {"rack": {"addresses": "10.0.0.1:6379", "secret_file": "/etc/kvlease-exchange/password"}},
    "exchange": {"secret": "redis", "tenantSecret": "tenants"},
    "tenants": {"a": {"uids": "1001, 1002", "exclusive": True}, "b": {"remote": "rack"}},
    "runtimeClassName": "",
    "podLabels": {"example.com/has-kv-events": "true"},
    "runDirectory": "/srv/run",
    "exporter": {"port": 19758},
    "events": [{"name": "llama", "arguments": ["--namespace", "Llama-3-8B@*", "--endpoint", "tcp://*:5557"],
                "resources": {"limits": {"memory": "4Gi"}}}],
    "monitoring": {
        "podMonitor": {"enabled": True, "labels": {"release": "p"}},
        "rules": {"enabled": True, "labels": {"release": "p"}},
        "dashboard": {"enabled": True},
    },
}
SAID = ["max_clients = 8192", "compact = off", "log_level = debug", "memory_ratio = 50", "host_memory = 64GiB",
        "addresses = 10.0.0.1:6379", "remote = rack", "uids = 1001, 1002", "exclusive = on"]
REFUSED = {
    "an option that the chart sets": {"daemon": {"default_socket": True}},
    "a line that would be another option": {"tenants": {"a": {"group": "1\nuids = 0"}}},
    "a name that would end its section": {"tenants": {"a]\n[daemon": {}}},
    "no option": {"tenants": {"a": {"uids": [1, 2]}}},
    "what there is not": {"exportr": {}},
    "a remote's name": {"remotes": {"a]": {}}},
    "a Secret's name": {"exchange": {"secret": "a, b"}},
    "a port": {"exporter": {"port": 65536}},
    "a container's name": {"events": [{"name": "Llama_3", "arguments": []}]},
    "nothing to scrape": {"exporter": {"enabled": False}, "monitoring": {"podMonitor": {"enabled": True}}},
}


def expect(is_so, what):
    if not is_so:
        problems.append(what)


def objects(chart, values):
    """Objects by kind and name."""
    found = {}
    for text in chart.render(values, name="kvlease", namespace="kvlease").values():
        for one in yaml.safe_load_all(text):
            if one:
                found[one["kind"], one["metadata"]["name"]] = one
    return found


def options(text):
    """Sections of kvleased.conf, parsed."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


def comparable(found):
    """Objects with the configuration as options: comments differ."""
    config = found["ConfigMap", "kvleased"]["data"]
    config["kvleased.conf"] = options(config["kvleased.conf"])
    return found


def check_plain(chart):
    with open(source / "packaging/kubernetes/kvleased.yaml") as file:
        plain = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(file)}
    del plain["Namespace", "kvlease"]
    wanted, found = comparable(plain), comparable(objects(chart, {"tenants": TENANTS}))
    for what in wanted.keys() | found.keys():
        expect(wanted.get(what) == found.get(what),
               f"{what} isn't what kvleased.yaml has: {json.dumps(found.get(what))}, not {json.dumps(wanted.get(what))}")


def check_full(chart):
    chart.validate_schema(chart.merge_values(FULL))
    found = objects(chart, FULL)
    events = found["DaemonSet", "kvleased"]["spec"]["template"]["spec"]["containers"][2]
    expect((events["name"], events["command"][:2]) == ("events-llama", ["kvlease-events", "--namespace"]),
           f"the container of kvlease-events is {events}")
    for one in found.values():
        for release in RELEASES:
            if one["apiVersion"] in OURS:
                kubernetes_validate.validate(one, release, strict=True)
    config = found["ConfigMap", "kvleased"]["data"]["kvleased.conf"]
    for line in SAID:
        expect(f"\n{line}\n" in config + "\n", f"no line '{line}' in\n{config}")
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(config)
        file.flush()
        done = subprocess.run([kvleased, "--check-config", "--config", file.name], capture_output=True, text=True, check=False)
        expect(done.stdout == "ok\n", f"kvleased doesn't take it: {done.stderr}\n{config}")
    pod = found["DaemonSet", "kvleased"]["spec"]["template"]["spec"]
    labels = found["DaemonSet", "kvleased"]["spec"]["template"]["metadata"]["labels"]
    expect(labels.keys() == {"app.kubernetes.io/name", "example.com/has-kv-events"}, f"labels of the pod: {labels}")
    expect("runtimeClassName" not in pod, "a runtime class")
    expect(pod["volumes"][0]["hostPath"]["path"] == "/srv/run", pod["volumes"])
    expect(pod["containers"][1]["command"][-1] == ":19758", pod["containers"][1])
    rules = yaml.safe_load((source / "packaging/prometheus/kvlease.rules.yml").read_text())
    expect(found["PrometheusRule", "kvlease"]["spec"] == rules, "the alerts aren't those of packaging/prometheus")
    dashboard = json.loads(found["ConfigMap", "kvlease-dashboard"]["data"]["kvlease.json"])
    expect(dashboard == json.loads((source / "packaging/grafana/kvlease.json").read_text()), "another dashboard")
    expect(found["PodMonitor", "kvlease"]["metadata"]["labels"]["release"] == "p", "labels of the PodMonitor")
    expect(len(objects(chart, {"exporter": {"enabled": False}})["DaemonSet", "kvleased"]["spec"]["template"]["spec"]
               ["containers"]) == 1, "an exporter where there is to be none")


def check_exchange(chart):
    """Each Secret is mounted into its process alone. Without a remote neither is, and the process isn't there."""
    pod = objects(chart, FULL)["DaemonSet", "kvleased"]["spec"]["template"]["spec"]
    mounts = {c["name"]: {m["mountPath"]: m["name"] for m in c["volumeMounts"]} for c in pod["containers"]}
    socket = {"/run/kvlease-exchange": "exchange"}
    expect(mounts["exchange"] == {**socket, "/etc/kvlease-exchange": "exchange-secret"}, f"mounts: {mounts}")
    ours = {path: name for path, name in mounts["kvleased"].items() if name not in ("run", "state", "config", "tmp")}
    expect(ours == {**socket, "/etc/kvlease-tenants": "tenant-secret"}, f"mounts: {mounts}")
    secrets = {v["name"]: v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
    expect(secrets == {"exchange-secret": "redis", "tenant-secret": "tenants"}, f"volumes: {pod['volumes']}")
    plain = objects(chart, {"exchange": FULL["exchange"]})["DaemonSet", "kvleased"]["spec"]["template"]["spec"]
    expect("exchange" not in json.dumps(plain), f"something of kvlease-exchange: {plain}")


def check_refused(chart):
    for what, values in REFUSED.items():
        try:
            chart.validate_schema(chart.merge_values(values))
            chart.render(values, name="kvlease", namespace="kvlease")
            problems.append(f"not refused: {what}")
        except helm_python.HelmError:
            pass


def main():
    findings = helm_python.lint(folder, strict=True, namespace="kvlease", kube_version="v1.30.0")
    # 1: advice, as to have an icon.
    serious = [m for m in findings["messages"] if m["severity"] > 1]
    expect(not serious and not findings["errors"], f"lint: {findings}")
    with helm_python.Chart.load(folder) as chart:
        version = (source / "VERSION").read_text().strip()
        expect(chart.version == version, f"the chart is of version {chart.version}, VERSION of {version}")
        check_plain(chart)
        check_full(chart)
        check_exchange(chart)
        check_refused(chart)
    print("\n".join(map(str, problems)) if problems else f"Helm chart, by Helm {helm_python.helm_sdk_version()}: ok")
    return 1 if problems else 0


sys.exit(main())
