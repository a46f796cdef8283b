"""The fixtures of the package's own tests, private daemons among them, for the tests of engines."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

CONFTEST = Path(__file__).resolve().parents[2] / "client/python/tests/conftest.py"

spec = importlib.util.spec_from_file_location("kvlease_conftest", CONFTEST)
assert spec and spec.loader
package = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = package
spec.loader.exec_module(package)

Daemon = package.Daemon
MakeDaemon = package.MakeDaemon
make_daemon = package.make_daemon
wait_until = package.wait_until
