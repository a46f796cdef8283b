"""Some texts that are found are computed all the same: pages with other numbers are found out."""

from __future__ import annotations

from typing import Any

import kvlease_conftest as package
from support import ctl, failures, held, make_prompts, on

PROMPTS = make_prompts(1, 200, 40, 70)


def test_equal_engines_agree(daemon: package.Daemon, start_engines: Any) -> None:
    alone, first, second = start_engines({}, on(daemon), on(daemon, verify=1))
    expected = alone.call("run", PROMPTS, 24)["tokens"]
    assert first.call("run", PROMPTS, 24)["tokens"] == expected
    assert second.call("run", PROMPTS, 24)["tokens"] == expected
    stats = second.call("stats")
    assert stats["verified"] == len(PROMPTS)
    assert stats["hit_tokens"] == 0
    assert stats["compared_pages"] == stats["duplicate_pages"] > 0
    assert failures(daemon) == 0
    second.call("stop")
    first.call("stop")
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert "consistent" in ctl(daemon, "check")
