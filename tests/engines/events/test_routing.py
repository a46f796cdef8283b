"""What followers and queries say of three hosts, against what engines find there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench/routing.py"


def test_pictures() -> None:
    """They are right of nearly all tokens, also after evictions and the death of a kvleased."""
    command = [sys.executable, str(BENCH), "--requests", "2000", "--kill"]
    command += ["--routers", "2", "--placements", "told,events,query"]
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    wrong = {line.split()[0]: float(line.split()[7].rstrip("%")) for line in said.split("\n")[1:-1]}
    assert wrong.keys() == {"told", "events", "query"}, said
    assert wrong["told"] > 1, said  # else there was nothing to learn
    assert wrong["events"] < 1 and wrong["query"] < 1, said
