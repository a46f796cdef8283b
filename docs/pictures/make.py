#!/usr/bin/env python3
"""Takes the pictures of kvlease-exporter's page that docs/operate/watch.md shows.

    docs/pictures/make.py BUILD-DIRECTORY    writes page-light.png, page-dark.png and page-narrow.png beside it

Five tenants work for four minutes on a small cache of a private daemon, as the last hour is drawn by
points of 15 s. Needs chromium. Pictures differ a little from run to run; look at them.
"""
import base64
import importlib.util
import pathlib
import shutil
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MINUTES = 4
OPTIONS = ["daemon.devices=host", "device.host.memory=64MiB", "device.host.extent=2MiB", "device.host.host_memory=32MiB",
           "tenant.chat.class=pinned", "tenant.chat.reserve=24MiB", "tenant.chat.weight=200", "tenant.search.limit=48MiB",
           "tenant.code.class=pinned", "tenant.code.reserve=8MiB", "tenant.batch.weight=50", "tenant.nightly.priority=10"]
# Of each tenant: texts that it reads again and again, pages of a text, texts that are new in a round.
LOADS = {"chat": (12, 256, 1), "search": (8, 256, 2), "code": (5, 192, 1), "batch": (3, 256, 6)}
PICTURES = {"page-light": ("light", 1000, None), "page-dark": ("dark", 1280, 640), "page-narrow": ("light", 360, 900)}


def load_scene(build):
    spec = importlib.util.spec_from_file_location("status_page", HERE.parents[1] / "tests/integration/status-page.py")
    sys.argv[1:] = [build / "daemon/server/kvleased", build / "client/exporter/kvlease-exporter",
                    build / "tests/integration/kvl-worker"]
    scene = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scene)
    return scene


def ask(worker, command):
    """A lease that is refused is of the picture, too."""
    worker.process.stdin.write(command + "\n")
    worker.process.stdin.flush()
    return worker.process.stdout.readline()


def work(workers, until):
    """Rounds in which each looks for what it read before, computes what is gone, and reads something new."""
    n = 0
    while time.monotonic() < until:
        for tenant, worker in workers.items():
            kept, pages, new = LOADS[tenant]
            for chain in range(n % 3, kept, 3):
                keys = f"{chain}:0-{pages - 1}"
                if ask(worker, f"hits 4 {keys}") == "0 0\n":
                    ask(worker, f"cache {chain} {pages}")
            for i in range(new if n % 4 else 0):
                chain = 1000 + (n * 7 + i) % 40
                ask(worker, f"hits 1 {chain}:0-{pages - 1}")
                ask(worker, f"cache {chain} {pages}")
        n += 1
        time.sleep(1)


def take(browser, name, scheme, width, height):
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height or 800, deviceScaleFactor=1, mobile=False)
    if height is None:
        height = browser.run("document.documentElement.scrollHeight")
    time.sleep(1)
    shot = browser.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                       clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})
    (HERE / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


def main():
    if len(sys.argv) != 2 or not shutil.which("chromium"):
        sys.exit(__doc__)
    scene = load_scene(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="kvl-pictures-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        try:
            scene.Daemon(folder, OPTIONS)
            it = scene.Exporter(folder)
            browser = scene.Browser(shutil.which("chromium"), folder)
            browser.ask("Page.navigate", url=it.url + "/")
            workers = {tenant: scene.Worker(folder, tenant) for tenant in LOADS}
            work(workers, time.monotonic() + 60 * MINUTES)
            browser.see(f"{scene.STATE} === 'live'", "the page isn't live")
            for picture, how in PICTURES.items():
                take(browser, picture, *how)
        finally:
            scene.end_all()


main()
