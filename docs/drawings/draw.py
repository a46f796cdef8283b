#!/usr/bin/env python3
"""
Draws docs/drawings/*.svg from the text beside them.

  draw.py            writes them
  draw.py --check    fails where one isn't what its text says, or where rooms.txt doesn't name the rooms there are

The first line of a text is its title; lines that begin with # are comments. Words of the others, by what the text is:

  rooms.txt   column NAME | says       a column of rooms, lowest first; NAME: a tree of tests/tools/rooms.py, or a word
              room NAME | says         a room of the last column
              floor NAME | says        what all columns stand on, lowest last
              leans A -> B             rooms of column A use those of column B
  states.txt  state NAME COLUMN ROW | says
              move A -> B | label | SHIFT | WAY   SHIFT: the line lies so far from the middle (px, may be left out);
              WAY: "aside" (out at the side, in from above or below), "under" (along the lower edge), or nothing
  hit.txt     lane NAME | says
              step A -> B | says       a step from one lane to another (A -> A: within it); A ~> B: later, not waited for
              note A | says
"""
from __future__ import annotations

import html
import pathlib
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "tools"))
import rooms as rooms_of_the_tree  # noqa: E402

INK, PALE, LINE, TEXT, DIM = "#1f3a5f", "#eef3f9", "#6b7f99", "#16202c", "#4a5a6d"
STYLE = (
    "text{font-family:system-ui,sans-serif;fill:" + TEXT + "}.t{font-size:20px;font-weight:600}.n{font-size:14px;"
    "font-weight:600}.s{font-size:12px;fill:" + DIM + "}.l{font-size:12px}.b{fill:" + PALE + ";stroke:" + INK + ";"
    "stroke-width:1.2}.c{fill:#fff;stroke:" + LINE + ";stroke-dasharray:4 3}.a{stroke:" + INK + ";stroke-width:1.4;"
    "fill:none;marker-end:url(#h)}.d{stroke-dasharray:5 4}"
)


class Canvas:
    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []
        self.width = self.height = 0.0

    def reach(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)

    def box(self, x: float, y: float, w: float, h: float, kind: str = "b") -> None:
        self.parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5"/>')
        self.reach(x + w, y + h)

    def text(self, x: float, y: float, text: str, kind: str, anchor: str = "start") -> None:
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{html.escape(text)}</text>')
        self.reach(x, y)

    def paragraph(self, x: float, y: float, text: str, kind: str, columns: int, anchor: str = "start") -> int:
        lines = textwrap.wrap(text, columns)
        for i, line in enumerate(lines):
            self.text(x, y + 15 * i, line, kind, anchor)
        return len(lines)

    def arrow(self, points: list[tuple[float, float]], dashed: bool = False) -> None:
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path class="a{" d" if dashed else ""}" d="{path}"/>')
        for x, y in points:
            self.reach(x, y)

    def svg(self) -> str:
        w, h = self.width + 20, self.height + 20
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w:g} {h:g}" width="{w:g}" height="{h:g}" role="img">\n'
            f"<title>{html.escape(self.title)}</title>\n<style>{STYLE}</style>\n"
            f'<defs><marker id="h" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            f'<path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>\n<rect width="100%" height="100%" fill="#fff"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


Line = tuple[str, str, str]  # the first word, the other words, what is said


def read(name: str) -> tuple[str, list[Line]]:
    title, *rest = [s for s in (HERE / name).read_text().splitlines() if s.strip() and not s.startswith("#")]
    lines = []
    for s in rest:
        words, _, says = s.partition("|")
        first, _, others = words.strip().partition(" ")
        lines.append((first, others.strip(), says.strip()))
    return title, lines


def draw_rooms(title: str, lines: list[Line]) -> Canvas:
    canvas = Canvas(title)
    columns: list[tuple[str, str, list[tuple[str, str]]]] = []
    for first, name, says in lines:
        if first == "column":
            columns.append((name, says, []))
        elif first == "room":
            columns[-1][2].append((name, says))
    width, gap, room_height = 310, 26, 52
    tallest = max(len(c[2]) for c in columns)
    top, bottom = 76, 76 + 40 + tallest * (room_height + 6)
    canvas.text(20, 34, title, "t")
    place = {}
    for i, (name, says, entries) in enumerate(columns):
        x = 20 + i * (width + gap)
        height = 40 + len(entries) * (room_height + 6)
        canvas.box(x, bottom - height, width, height, "c")
        canvas.text(x + 10, bottom - height + 17, name, "n")
        canvas.text(x + 10, bottom - height + 32, says, "s")
        place[name] = (x, bottom - height)
        for k, (room, text) in enumerate(reversed(entries)):
            y = bottom - height + 40 + k * (room_height + 6)
            canvas.box(x + 8, y, width - 16, room_height)
            canvas.text(x + 16, y + 16, room, "n")
            canvas.paragraph(x + 16, y + 31, text, "s", 42)
    for first, words, says in lines:
        if first == "leans":
            a, b = (w.strip() for w in words.split("->"))
            left, right = place[a][0] + width, place[b][0]
            y = max(place[a][1], place[b][1]) + 24
            canvas.arrow([(left, y), (right - 2, y)] if left < right else [(place[a][0], y), (place[b][0] + width + 2, y)])
    y = bottom + 14
    for first, name, says in lines:
        if first == "floor":
            canvas.box(20, y, len(columns) * (width + gap) - gap, 30)
            canvas.text(30, y + 20, name, "n")
            canvas.text(150, y + 20, says, "s")
            y += 36
    canvas.text(20, top - 22, "A module (room) may use those below it in its column. tests/tools/check-edges.py lists the layers that it may use.", "s")
    return canvas


def draw_states(title: str, lines: list[Line]) -> Canvas:
    canvas = Canvas(title)
    canvas.text(20, 34, title, "t")
    w, h, dx, dy = 190.0, 76.0, 320.0, 140.0
    at: dict[str, tuple[float, float]] = {}
    for first, words, says in lines:
        if first == "state":
            name, column, row = words.split()
            x, y = 20 + float(column) * dx, 60 + float(row) * dy
            at[name] = (x, y)
            canvas.box(x, y, w, h)
            canvas.text(x + w / 2, y + 19, name, "n", "middle")
            canvas.paragraph(x + w / 2, y + 36, says, "s", 28, "middle")
    lowest = max(y for _, y in at.values()) + h + 40
    for first, words, says in lines:
        if first != "move":
            continue
        a, b = (n.strip() for n in words.split("->"))
        (ax, ay), (bx, by) = at[a], at[b]
        label, shift, way = ([s.strip() for s in says.split("|")] + ["", ""])[:3]
        offset = float(shift or 0)
        if way == "under":  # down, along the lower edge, and up
            points = [(ax + w / 2 + offset, ay + h), (ax + w / 2 + offset, lowest), (bx + w / 2 + offset, lowest),
                      (bx + w / 2 + offset, by + h + 3)]
            middle, upright = ((ax + bx + w) / 2, lowest - 6), False
        elif way == "aside":  # out at the side, in from above or below
            x = bx + w / 2 + offset
            points = [(ax + w if x > ax + w else ax, ay + h / 2), (x, ay + h / 2), (x, by - 3 if ay < by else by + h + 3)]
            middle, upright = ((points[0][0] + x) / 2, ay + h / 2 - 6), False
        elif abs(ay - by) < 1:  # beside each other
            y = ay + h / 2 + offset
            points = [(ax + w, y), (bx - 3, y)] if ax < bx else [(ax, y), (bx + w + 3, y)]
            middle, upright = ((points[0][0] + points[1][0]) / 2, y - 6), False
        elif abs(ax - bx) < 1:  # above each other
            x = ax + w / 2 + offset
            points = [(x, ay + h), (x, by - 3)] if ay < by else [(x, ay), (x, by + h + 3)]
            middle, upright = (x, (points[0][1] + points[1][1]) / 2), True
        else:  # out below or above, in at the side
            x = ax + w / 2 + offset
            points = [(x, ay + h if ay < by else ay), (x, by + h / 2), (bx + w + 3 if x > bx else bx - 3, by + h / 2)]
            middle, upright = ((x + bx) / 2, by + h / 2 - 6), False
        canvas.arrow(points)
        columns = 20 if upright else 17 if abs(ay - by) < 1 and way == "" else 40
        n = len(textwrap.wrap(label, columns))
        if upright:
            left = "-" in shift
            canvas.paragraph(middle[0] + (-6 if left else 6), middle[1] - 15 * (n - 1) / 2 + 4, label, "l", columns,
                             "end" if left else "start")
        else:
            canvas.paragraph(middle[0], middle[1] - 15 * (n - 1), label, "l", columns, "middle")
    return canvas


def draw_steps(title: str, lines: list[Line]) -> Canvas:
    canvas = Canvas(title)
    canvas.text(20, 34, title, "t")
    dx, w, y = 250.0, 200.0, 60.0
    lanes: dict[str, float] = {}
    for first, name, says in lines:
        if first == "lane":
            x = 20 + len(lanes) * dx
            lanes[name] = x + w / 2
            canvas.box(x, y, w, 52)
            canvas.text(x + w / 2, y + 18, name, "n", "middle")
            canvas.paragraph(x + w / 2, y + 34, says, "s", 34, "middle")
    y += 82
    begin, number = y - 28, 0
    for first, words, says in lines:
        if first == "note":
            n = len(textwrap.wrap(says, 60))
            canvas.paragraph(lanes[words] + 8, y + 4, says, "s", 60)
            y += 15 * n + 14
        elif first == "step":
            number += 1
            dashed = "~>" in words
            a, b = (lanes[n.strip()] for n in words.split("~>" if dashed else "->"))
            text = f"{number}. {says}"
            if a == b:
                n = canvas.paragraph(a + 40, y + 4, text, "l", 44)
                canvas.arrow([(a, y - 6), (a + 30, y - 6), (a + 30, y + 10), (a + 3, y + 10)], dashed)
                y += 15 * n + 18
            else:
                n = len(textwrap.wrap(text, 40))
                canvas.paragraph(min(a, b) + 8, y, text, "l", 40)
                y += 15 * n - 4
                canvas.arrow([(a, y), (b - 3 if a < b else b + 3, y)], dashed)
                y += 26
    for x in lanes.values():
        canvas.parts.insert(0, f'<path stroke="{LINE}" stroke-dasharray="2 4" d="M{x:g} {begin:g} V{y:g}"/>')
    canvas.reach(0, y)
    return canvas


def check_names(lines: list[Line]) -> list[str]:
    """Whether the rooms drawn are those that tests/tools/rooms.py lists, in its order."""
    drawn: dict[str, list[str]] = {}
    tree = ""
    for first, name, _ in lines:
        if first == "column":
            tree = name
        elif first == "room":
            drawn.setdefault(tree, []).append(name)
    return [
        f"rooms.txt: {tree} has the rooms {' '.join(names)}; {' '.join(drawn.get(tree, []))} are drawn"
        for tree, names in rooms_of_the_tree.ROOMS.items()
        if drawn.get(tree) != names
    ]


def main() -> int:
    kinds = {"rooms": draw_rooms, "states": draw_states, "hit": draw_steps}
    problems = []
    for name, draw in kinds.items():
        title, lines = read(f"{name}.txt")
        if name == "rooms":
            problems += check_names(lines)
        svg, path = draw(title, lines).svg(), HERE / f"{name}.svg"
        if "--check" not in sys.argv[1:]:
            path.write_text(svg)
        elif not path.exists() or path.read_text() != svg:
            problems.append(f"{path.name} isn't what {name}.txt says: run docs/drawings/draw.py")
    print("\n".join(problems) if problems else "drawings: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
