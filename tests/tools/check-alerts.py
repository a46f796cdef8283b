#!/usr/bin/env python3
"""check-alerts.py RULES EXPORTER DASHBOARD: the alerts, run by promtool; and the dashboard.

In a healthy scenario no alert fires. Every alert has a scenario that is healthy for eight hours, has the
alert's trouble for two, and is well again for two: the alert is silent, fires and is silent, and no other
one fires. Then each alert is tried without the others, which takes promtool a fraction of the time, as it is
and broken: it never fires, it always does, and it goes on when all is well; each must be noticed. The metrics
that rules, scenarios and the dashboard name must be in the tables of the exporter (a folder), and the
dashboard's expressions such that promtool can read them.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

rules_path, client, dashboard = map(pathlib.Path, sys.argv[1:4])
WHO = 'instance="h",job="kvlease"'
BEFORE, TROUBLE, AFTER = 96, 24, 24  # steps of 5 min


def series(name, labels=""):
    return f"kvlease_{name}{{{labels + ',' if labels else ''}{WHO}}}"


def flat(before, trouble=None, after=None):
    """A constant value while healthy, in the trouble, and after it. "_": no sample."""
    trouble = before if trouble is None else trouble
    return [before] * BEFORE + [trouble] * TROUBLE + [before if after is None else after] * AFTER


def grow(before, trouble=None):
    """A counter that grows by `before` a step; in the trouble by `trouble`."""
    steps = flat(before, trouble)
    return [sum(steps[:i]) for i in range(1, len(steps) + 1)]


def burst(rest=0, n=3):
    """A counter that grows by `rest` a step, and by one more in the trouble's last `n`."""
    end = BEFORE + TROUBLE
    return [rest * i + min(max(i - end + n, 0), n) for i in range(1, len(flat(0)) + 1)]


def restarted():
    """Seconds since a start: the trouble begins with another start, and a day passes at once after it."""
    since = [0] * BEFORE + [300 * BEFORE] * TROUBLE + [300 * BEFORE - 86400] * AFTER
    return [300 * i - start for i, start in enumerate(since)]


def values(samples):
    """promtool's notation: runs of equal values."""
    runs = []
    for value in samples:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return " ".join(f"_x{n}" if value == "_" else f"{value}x{n - 1}" if n > 1 else str(value) for value, n in runs)


def bucket(le, kind="LEASE"):
    return series("request_duration_seconds_bucket", f'type="{kind}",le="{le}"')


def restarts(outcome):
    return series("restarts_total", f'outcome="{outcome}"')


def refused(reason):
    return series("tenant_refused_leases_total", f'tenant="a",reason="{reason}"')


def device(tier, state):
    return series("device_state", f'device="g",tier="{tier}",state="{state}"')


def damaged(tier):
    return series("namespace_damaged_pages_total", f'tenant="a",namespace="n",device="g",tier="{tier}"')


def exchange(name, labels=""):
    return series(f"exchange_{name}", f'tenant="a",remote="x"{"," + labels if labels else ""}')


NODES, LEFT_ALONE = exchange("nodes"), exchange("nodes_left_alone")
NOT_IMPORTED, NOT_EXPORTED = (exchange(f"not_{what}_pages_total", 'reason="{}"') for what in ("imported", "exported"))
ERRORS, LATE = (series(f"disk_{what}_total", 'device="g",tier="disk"') for what in ("errors", "late_operations"))
HIT, MISS = (series("lookup_pages_total", f'result="{r}"') for r in ("hit", "miss"))
HEALTHY = {
    series("up"): flat(1),
    device("device", "ok"): flat(1),
    device("device", "stuck"): flat(0),
    device("device", "broken"): flat(0),
    device("disk", "ok"): flat(1),
    device("disk", "failing"): flat(0),
    device("disk", "off"): flat(0),
    damaged("host"): flat(3),
    damaged("disk"): flat(0),
    ERRORS: flat(2),
    LATE: flat(0),
    restarts("survived"): flat(1),
    restarts("emptied"): flat(0),
    series("start_lost_pages", 'reason="checksum"'): flat(0),
    series("start_lost_pages", 'reason="parent"'): flat(0),
    series("start_lost_namespaces"): flat(0),
    series("uptime_seconds"): [300 * i for i in range(len(flat(0)))],
    series("restart_keeps_state"): flat(1),
    series("kept_descriptors"): flat(100),
    series("kept_descriptors_limit"): flat(8192),
    series("device_missing_bytes", 'device="g",tier="device"'): flat(0),
    refused("pool_full"): grow(30),  # one in ten seconds
    refused("draining"): grow(3000),
    series("tenant_lease_wait_seconds_total", 'tenant="a"'): grow(1),
    series("tenant_waited_leases_total", 'tenant="a"'): grow(30),
    series("tenant_lease_wait_seconds_total", 'tenant="b"'): flat(0),
    series("tenant_waited_leases_total", 'tenant="b"'): flat(0),
    HIT: grow(9000),
    MISS: grow(1000),
    series("violations_total", 'rule="fds"'): flat(2),
    series("peers", 'state="muted"'): flat(0),
    series("peers", 'state="new"'): flat(3),
    series("pending_bytes"): flat(1000),
    series("pending_limit_bytes"): flat(67108864),
    series("draining"): flat(0),
    series("fragmentation_ratio"): flat(0.05),
    bucket("0.001"): grow(1000),
    bucket("0.1"): grow(1000),
    bucket("+Inf"): grow(1000),
    bucket("0.001", "ADMIN_CHECK"): flat(0),
    bucket("0.1", "ADMIN_CHECK"): flat(0),
    bucket("+Inf", "ADMIN_CHECK"): grow(100),
    NODES: flat(3),
    LEFT_ALONE: flat(0),
    **{NOT_IMPORTED.replace("{}", why): grow(10) for why in ("not-worth", "late", "gone", "unreached")},
    NOT_IMPORTED.replace("{}", "damaged"): flat(4),
    NOT_EXPORTED.replace("{}", "busy"): flat(7),
    NOT_EXPORTED.replace("{}", "gone"): grow(10),
    series("exporter_rows", 'list="tenants",told="named"'): flat(200),
    series("exporter_rows", 'list="tenants",told="summed"'): flat(0),
}
# Other troubles of these alerts: the changed series, and the alerts that fire.
MORE = {
    "KvleaseDiskFailing-late": ({LATE: burst()}, ["KvleaseDiskFailing"]),
    "KvleaseDiskFailing-now": ({device("disk", "failing"): flat(0, 1)}, ["KvleaseDiskFailing"]),
    # The first violation of a kind: kvleased exports each rule from the start, so it is an increase.
    "KvleaseViolations-first": ({series("violations_total", 'rule="new"'): burst(n=1)}, ["KvleaseViolations"]),
    # A new Prometheus doesn't take an old violation for news.
    "KvleaseViolations-old": ({series("violations_total", 'rule="old"'): flat("_", 1, 1)}, []),
    # No name of a node can be resolved.
    "KvleaseRemoteUnreachable-names": ({NODES: flat(3, 0), LEFT_ALONE: flat(0)}, ["KvleaseRemoteUnreachable"]),
    # The first value that was refused.
    "KvleaseRemoteValuesRefused-first": ({NOT_IMPORTED.replace("{}", "damaged"): burst(n=1)}, ["KvleaseRemoteValuesRefused"]),
    # Nothing was lost at a restart.
    "KvleasePagesLostAtStart-none": ({series("uptime_seconds"): restarted()}, []),
    # Whole namespaces were lost.
    "KvleasePagesLostAtStart-namespaces": (
        {series("start_lost_namespaces"): flat(0, 1, 1), series("uptime_seconds"): restarted()},
        ["KvleasePagesLostAtStart"],
    ),
}
# Differences from healthy.
SCENARIOS = {
    "KvleaseExporterGone": {series("up"): flat(1, "_")},
    "KvleaseDown": {series("up"): flat(1, 0)},
    "KvleaseDeviceFailed": {device("device", "stuck"): flat(0, 1)},
    "KvleasePagesDamaged": {damaged("disk"): burst()},
    "KvleaseDiskGivenUp": {device("disk", "off"): flat(0, 1), ERRORS: burst()},
    "KvleaseDiskFailing": {ERRORS: burst()},
    "KvleaseCacheLost": {restarts("emptied"): burst()},
    "KvleaseRestartLoop": {restarts("survived"): grow(0, 1)},
    # The count of lost pages stays until another restart.
    "KvleasePagesLostAtStart": {
        series("start_lost_pages", 'reason="parent"'): flat(0, 7, 7),
        series("uptime_seconds"): restarted(),
    },
    "KvleaseNothingKept": {series("restart_keeps_state"): flat(1, 0)},
    "KvleaseKeptDescriptorsNearlyFull": {series("kept_descriptors"): flat(100, 8000)},
    "KvleaseReservationMissing": {series("device_missing_bytes", 'device="g",tier="device"'): flat(0, 4194304)},
    "KvleaseLeasesRefused": {refused("pool_full"): grow(30, 600)},
    "KvleaseLeasesWait": {series("tenant_lease_wait_seconds_total", 'tenant="a"'): grow(1, 90)},
    "KvleaseHitRatioFell": {HIT: grow(9000, 500)},
    "KvleaseVerifyFailed": {series("verify_failures_total", 'tenant="a"'): burst()},
    "KvleaseViolations": {series("violations_total", 'rule="fds"'): burst()},
    "KvleaseClientsMuted": {series("peers", 'state="muted"'): flat(0, 1)},
    "KvleasePendingNearlyFull": {series("pending_bytes"): flat(1000, 60000000)},
    "KvleaseDraining": {series("draining"): flat(0, 1)},
    "KvleaseFragmented": {series("fragmentation_ratio"): flat(0.05, 0.4)},
    "KvleaseRequestsSlow": {bucket("0.001"): grow(1000, 900)},
    "KvleaseRemoteUnreachable": {LEFT_ALONE: flat(0, 3)},
    "KvleaseRemoteNodeLeftAlone": {LEFT_ALONE: flat(0, 1)},
    "KvleaseRemoteValuesRefused": {NOT_IMPORTED.replace("{}", "damaged"): grow(0, 2)},
    "KvleaseRemoteExportsDropped": {NOT_EXPORTED.replace("{}", "busy"): grow(0, 50)},
    "KvleaseRowsSummed": {series("exporter_rows", 'list="tenants",told="summed"'): flat(0, 3)},
}


def firing(step, alerts):
    """At the last step before this one exactly these alerts fire, each once."""
    return {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{5 * (step - 1)}m",
        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in alerts],
    }


def scenario(changes, fires):
    """A promtool test: none fires, then these do in the trouble, then none again."""
    return {
        "interval": "5m",
        "input_series": [{"series": name, "values": values(samples)} for name, samples in {**HEALTHY, **changes}.items()],
        "promql_expr_test": [
            firing(BEFORE, []),
            firing(BEFORE + TROUBLE, fires),
            firing(BEFORE + TROUBLE + AFTER, []),
        ],
    }


def write(folder, name, rules, tests):
    rules_file, tests_file = folder / f"{name}.rules.yml", folder / f"{name}.test.yml"
    rules_file.write_text(rules)
    tests_file.write_text(json.dumps({"rule_files": [str(rules_file)], "evaluation_interval": "5m", "tests": tests}))
    return tests_file


def run(files):
    """Returns the files that passed, and all output: one promtool for each processor."""
    n = os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        passed, said = zip(*pool.map(run_some, [files[i::n] for i in range(min(n, len(files)))]))
    return {name: is_passed for some in passed for name, is_passed in some.items()}, "".join(said)


def run_some(files):
    done = subprocess.run(["promtool", "test", "rules", *map(str, files)], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    parts = re.split(r"^Unit Testing:\s+", said, flags=re.M)[1:]
    return {pathlib.Path(part.split()[0]).name.removesuffix(".test.yml"): "SUCCESS" in part for part in parts}, said


RULE = r"(- alert: {}\n\s+expr: )([^\n]*)\n(\s+for: [^\n]*\n)?"


def alone(rules, alert):
    """The rules with this alert alone."""
    head, *blocks = re.split(r"^(?= *- alert: )", rules, flags=re.M)
    return head + "".join(b for b in blocks if re.match(rf" *- alert: {alert}\n", b))


def broken(rules, alert, expr):
    return re.sub(RULE.format(alert), rf"\g<1>{expr}\n", rules, count=1)


def lasting(rules, alert):
    """The rules with an alert that never ends once it has fired."""
    return re.sub(RULE.format(alert), r"\g<1>max_over_time((\g<2>)[2h:5m]) > -Inf\n\g<3>", rules, count=1)


def expressions():
    """Expressions of the dashboard, with its variables filled in."""
    panels = json.loads(dashboard.read_text())["panels"]
    found = [t["expr"] for p in panels for t in p.get("targets", [])]
    if len(found) < 20:
        sys.exit(f"{dashboard}: can't be read")
    return [re.sub(r"\$__(rate_interval|range)", "5m", e).replace("$instance", ".*").replace("$tenant", ".*") for e in found]


def check_panels():
    """Each panel explains what it shows, and what follows from it, to a reader who sees only this panel."""
    panels = [p for p in json.loads(dashboard.read_text())["panels"] if p["type"] != "row"]
    return [f"{dashboard}: panel {p['title']} has no description" for p in panels if len(p.get("description", "")) < 40]


def check_expressions(folder, found):
    """promtool checks the expressions as rules."""
    rules = [{"record": f"panel:{i}", "expr": e} for i, e in enumerate(found)]
    path = folder / "dashboard.rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    return check_rules(path)


def check_rules(path):
    done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    return [done.stdout + done.stderr] if done.returncode != 0 else []


def check_names(rules):
    """The exporter has all families that rules and scenarios name."""
    source = "".join(path.read_text() for path in [*sorted(client.glob("*.c")), *client.glob("../../proto/figures.def")])
    known = set(re.findall(r'"([a-z0-9_]+)"', source))
    names = set(re.findall(r"\bkvlease_([a-z0-9_]+)", rules + " ".join(HEALTHY)))
    return sorted(f"no metric kvlease_{name} in {client}" for name in names if re.sub(r"_(total|bucket)$", "", name) not in known)


def main():
    rules = rules_path.read_text()
    alerts = re.findall(r"- alert: (\w+)", rules)
    shown = expressions()
    problems = check_names(rules + " ".join(shown)) + check_panels()
    problems += [f"no scenario for {a}" for a in alerts if a not in SCENARIOS]
    problems += [f"no alert {a}" for a in SCENARIOS if a not in alerts]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        problems += check_rules(rules_path) + check_expressions(folder, shown)
        files = [write(folder, "healthy", rules, [scenario({}, [])])]
        files += [write(folder, a, rules, [scenario(SCENARIOS[a], [a])]) for a in SCENARIOS]
        files += [write(folder, a, rules, [scenario(*what)]) for a, what in MORE.items()]
        passed, said = run(files)
        for test in ["healthy", *SCENARIOS, *MORE]:
            if not passed.get(test):
                problems.append(f"{test}: not what it should be\n{said}")
                said = ""
        files = []
        for a in SCENARIOS:
            one, fires = alone(rules, a), [scenario(SCENARIOS[a], [a])]
            files += [write(folder, f"{a}-alone", one, fires), write(folder, f"{a}-never", broken(one, a, "vector(0) > 1"), fires),
                      write(folder, f"{a}-always", broken(one, a, "vector(1)"), [scenario({}, [])]),
                      write(folder, f"{a}-lasting", lasting(one, a), fires)]
        passed, said = run(files)
        for test in files:
            name = test.name.removesuffix(".test.yml")
            if name.endswith("-alone") and not passed.get(name):
                problems.append(f"{name}: not what it should be\n{said}")
                said = ""
            elif not name.endswith("-alone") and passed.get(name, True):
                problems.append(f"{name}: nobody notices")
    print("\n".join(problems) if problems else f"alerts: {len(alerts)} are silent, fire and are silent where they should, and each is missed where it is broken")
    return 1 if problems else 0


sys.exit(main())
