#!/usr/bin/env python3
"""Fails where the documents' site can't be made, or where a browser doesn't show it as it should.

    check-site.py SOURCE PAGE.scd...

Each page fits screens of 360 and 1280 pixels, in light and dark colours, breaks no word in a table, and loads nothing from elsewhere.
The search finds the answer
to each question of questions.txt by its words. Texts of the drawings are inside their boxes. Skipped (77) without sphinx or chromium.
"""
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

source = pathlib.Path(sys.argv[1])
MOST_FOUND = 6  # places of a search that a reader looks at; not tuned
OVERFLOW = """(() => {
    const boxes = [...document.querySelectorAll('rect')].map(r => r.getBBox()), all = document.documentElement.viewBox.baseVal
    return [...document.querySelectorAll('text')].filter(text => {
        const at = text.getBBox(), x = text.getAttribute('text-anchor') === 'middle' ? at.x + at.width / 2 : at.x, y = at.y + at.height / 2
        return boxes.some(box => x >= box.x && x <= box.x + box.width && y > box.y && y < box.y + box.height
            && (at.x < box.x - 1 || at.x + at.width > box.x + box.width + 1)) || at.x + at.width > all.width + 1
    }).map(text => text.textContent).join('; ')
})()"""
BROKEN = """(() => {
    const range = document.createRange(), broken = []
    for (const cell of document.querySelectorAll('th, td'))
        for (const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT); texts.nextNode();)
            for (const word of texts.currentNode.data.matchAll(/[A-Za-z0-9_]+/g)) {
                range.setStart(texts.currentNode, word.index)
                range.setEnd(texts.currentNode, word.index + word[0].length)
                if (new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1)
                    broken.push(word[0])
            }
    return broken.slice(0, 5).join(', ')
})()"""
problems = []


def module(path):
    """A script beside this one, as a module. Its arguments aren't these."""
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    loaded = importlib.util.module_from_spec(spec)
    sys.argv[1:] = ["none"] * 3
    spec.loader.exec_module(loaded)
    return loaded


def show(browser, path, query=""):
    browser.ask("Page.navigate", url=f"{path.as_uri()}{query}")
    browser.see("document.readyState === 'complete'", f"{path} isn't loaded")


def check_pages(browser, site, pages):
    for width, scheme, dark in ((1280, "light", False), (360, "dark", True)):
        browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        for page in pages:
            show(browser, page)
            wide = browser.run("document.documentElement.scrollWidth")
            shade = browser.run("parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])")
            if wide > width or (shade < 128) != dark:
                problems.append(f"{page.relative_to(site)}: {wide} pixels wide on a screen of {width}, {scheme}: {shade}")
            if words := browser.run(BROKEN):
                problems.append(f"{page.relative_to(site)}: broken on a screen of {width}: {words}")
    asked = {e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"}
    problems.extend(f"it asks for {url}" for url in asked if not url.startswith("file:"))


def check_search(browser, site, places):
    for row in re.findall(r"^(.*\?) \| (\S+)#\S+ \| (.*)$", (source / "tests/tools/questions.txt").read_text(), re.M):
        question, page, words = row
        show(browser, site / "search.html", "?q=" + words.replace(" ", "+"))
        browser.see("/Search finished|did not match/.test(document.body.innerText)", f"no answer to {words}")
        links = browser.see("[...document.querySelectorAll('ul.search a')].map(a => a.getAttribute('href').split(/[?#]/)[0]).join(' ') || '-'",
                            f"no results of {words}").split()
        if places(page).replace(".md", ".html") not in links[:MOST_FOUND]:
            problems.append(f"'{question}': the search for '{words}' finds {links[:MOST_FOUND]}, not {page}")


def main():
    scd = sys.argv[2:]
    maker, program = module(source / "docs/site/site.py"), shutil.which("chromium")
    if not program or maker.missing():
        print(f"skipped: no {' '.join(['chromium'] if not program else maker.missing())}")
        return 77
    with tempfile.TemporaryDirectory(prefix="kvl-site-", ignore_cleanup_errors=True) as name:
        site = pathlib.Path(name) / "html"
        subprocess.run([source / "docs/site/site.py", source, name, *scd], check=True)
        scene = module(source / "tests/integration/status-page.py")
        try:
            browser = scene.Browser(program, pathlib.Path(name))
            pages = sorted(p for p in site.rglob("*.html") if p.name not in ("genindex.html", "search.html"))
            check_pages(browser, site, pages)
            check_search(browser, site, maker.place)
            for drawing in sorted((source / "docs/drawings").glob("*.svg")):
                show(browser, drawing)
                if text := browser.run(OVERFLOW):
                    problems.append(f"{drawing.name}: beyond its box: {text}")
        finally:
            scene.end_all()
    print("\n".join(problems) if problems else f"{len(pages)} pages: ok")
    return 1 if problems or len(pages) < 70 else 0


sys.exit(main())
