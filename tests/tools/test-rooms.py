#!/usr/bin/env python3
"""
Breaks each rule of check-edges.py, check-calls.py, check-ends.py and check-names.py on purpose, in a small tree that
is compiled for it, and expects the failure.

  test-rooms.py CC [ARG]...
"""
from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import rooms

FOLDER = pathlib.Path(__file__).resolve().parent
SOURCE = FOLDER.parents[1]
CC: list[str] = ["cc"]
TREE = "daemon/core"
LOW, HIGH = rooms.ROOMS[TREE][0], rooms.ROOMS[TREE][-1]
ABOVE = rooms.ROOMS[TREE][2]


def load(name: str) -> types.ModuleType:
    """Loads a program of this folder, whose name can't be imported."""
    path = FOLDER / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


edges, calls = load("check-edges"), load("check-calls")
names, ends, prose = load("check-names"), load("check-ends"), load("check-prose")


class Broken(unittest.TestCase):
    """A tree with a file in a low room and one in a high one; tests add faults to it."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name)
        self.write(f"{ABOVE}/package.c", "")
        self.write(f"{LOW}/low.h", "int low_get(void);\n")
        self.write(f"{LOW}/low.c", f'#include "{TREE}/{LOW}/low.h"\nint low_get(void)\n{{\n        return 1;\n}}\n')
        self.write(f"{HIGH}/high.h", "int high_get(void);\nextern int high_count;\n")
        self.write(
            f"{HIGH}/high.c",
            f'#include "{TREE}/{HIGH}/high.h"\n#include "{TREE}/{LOW}/low.h"\n'
            "int high_count;\nint high_get(void)\n{\n        return low_get() + high_count;\n}\n",
        )

    def write(self, name: str, text: str) -> None:
        path = self.top / TREE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def edges(self) -> tuple[list[str], list[str]]:
        bad, doors = edges.check(self.top)
        return bad, doors

    def library(self) -> pathlib.Path:
        """Library of the tree's sources, each compiled with the name that meson gives it."""
        library = self.top / "lib.a"
        objects = []
        for source in sorted((self.top / TREE).rglob("*.c")):
            name = source.relative_to(self.top / TREE).as_posix().replace("/", "_") + ".o"
            subprocess.run([*CC, "-I", self.top, "-c", source, "-o", self.top / name], check=True)
            objects.append(self.top / name)
        subprocess.run(["ar", "rc", library, *objects], check=True)
        return library

    def calls(self) -> list[str]:
        bad: list[str] = calls.check(self.top, [(TREE, self.library())])
        return bad

    def ends(self, *allowed: str) -> list[str]:
        """check-ends.py's findings in the high room and all that it uses, and in a package in the room above."""
        bad: list[str] = ends.check(self.top, [(TREE, self.library())], f"{TREE}/{HIGH}", f"{TREE}/{ABOVE}",
                                    dict.fromkeys(allowed, "a test"))
        return bad

    def test_whole(self) -> None:
        self.assertEqual(self.edges(), ([], []))
        self.assertEqual(self.calls(), [])

    def test_include_of_a_room_above(self) -> None:
        self.write(f"{LOW}/wrong.c", f'#include "{TREE}/{HIGH}/high.h"\n')
        bad, doors = self.edges()
        self.assertEqual(bad, [])
        self.assertEqual(len(doors), 1)
        self.assertIn(f"{TREE}/{LOW}/wrong.c includes {TREE}/{HIGH}/high.h", doors[0])

    def test_private_header(self) -> None:
        self.write(f"{LOW}/low-impl.h", "")
        self.write(f"{LOW}/inside.c", f'#include "{TREE}/{LOW}/low-impl.h"\n')
        self.assertEqual(self.edges(), ([], []))
        self.write(f"{HIGH}/outside.c", f'#include "{TREE}/{LOW}/low-impl.h"\n')
        _, doors = self.edges()
        self.assertEqual(doors, [f"{TREE}/{HIGH}/outside.c includes {TREE}/{LOW}/low-impl.h: it is private to its room"])

    def test_folder_that_is_no_room(self) -> None:
        self.write("attic/old.c", "")
        bad, _ = self.edges()
        self.assertEqual(len(bad), 1)
        self.assertIn("attic/old.c: its folder isn't listed", bad[0])

    def test_policy_that_prints(self) -> None:
        path = self.top / "policy" / "loud.c"
        path.parent.mkdir()
        path.write_text("#include <stdio.h>\nint say(char *s);\nint say(char *s)\n{\n        return snprintf(s, 1, \"a\");\n}\n")
        self.assertEqual(self.edges(), ([], []))
        path.write_text("#include <stdio.h>\nvoid say(void);\nvoid say(void)\n{\n        fprintf(stderr, \"a\");\n}\n")
        self.assertEqual(self.edges(), (["policy/loud.c:5: policy/ has no input or output"], []))

    def test_call_of_a_room_above(self) -> None:
        """A call without an include shows only in the object file."""
        self.write(f"{LOW}/wrong.c", "int high_get(void);\nint wrong(void)\n{\n        return high_get();\n}\n")
        self.assertEqual(self.edges(), ([], []))
        bad = self.calls()
        self.assertEqual(len(bad), 1)
        self.assertIn(f"{TREE}/{LOW}/wrong.c: uses high_get of {TREE}/{HIGH}/high.c", bad[0])

    def test_variable_of_a_room_above(self) -> None:
        self.write(f"{LOW}/wrong.c", "extern int high_count;\nint wrong(void)\n{\n        return high_count;\n}\n")
        self.assertIn(f"{TREE}/{LOW}/wrong.c: uses high_count", "\n".join(self.calls()))

    def test_declared_in_another_room(self) -> None:
        self.write(f"{LOW}/low.h", "int low_get(void);\nint high_get(void); /* isn't here */\n")
        self.assertEqual(self.calls(), [f"{TREE}/{LOW}/low.h: declares high_get, which is defined in {TREE}/{HIGH}/high.c"])

    def test_top_uses_every_room(self) -> None:
        self.write("top.c", f'#include "{TREE}/{HIGH}/high.h"\nint top(void)\n{{\n        return high_get();\n}}\n')
        self.assertEqual(self.edges(), ([], []))
        self.assertEqual(self.calls(), [])
        self.write(f"{HIGH}/wrong.c", "int top(void);\nint wrong(void)\n{\n        return top();\n}\n")
        self.assertIn(f"{TREE}/{HIGH}/wrong.c: uses top of {TREE}/top.c", "\n".join(self.calls()))


    def test_library_that_ends_the_process(self) -> None:
        wrong = "#include <stdlib.h>\nint low_get(void)\n{\n        abort();\n        return 1;\n}\n"
        self.assertEqual(self.ends(), [])
        self.write(f"{LOW}/alone.c", "void exit(int);\nvoid alone(void)\n{\n        exit(0); /* nobody uses it */\n}\n")
        self.assertEqual(self.ends(), [])
        self.write(f"{LOW}/low.c", wrong)
        self.assertEqual(self.ends(), [f"{TREE}/{LOW}/low.c: uses abort", f"{TREE}/{LOW}/low.c:4: abort"])
        self.assertEqual(self.ends(f"{TREE}/{LOW}/low.c"), [])

    def test_library_that_ends_the_process_unseen(self) -> None:
        """Ends by a macro, whose name the source has; and by an instruction, which the object doesn't name."""
        self.write(f"{HIGH}/trap.c", "void trap(void);\nvoid trap(void)\n{\n        __builtin_trap();\n}\n")
        self.write(f"{HIGH}/hidden.c", '#define END() _ex##it(0)\n#include <unistd.h>\nvoid hidden(void)\n{\n        END();\n}\n')
        self.assertEqual(self.ends(), [f"{TREE}/{HIGH}/hidden.c: uses _exit", f"{TREE}/{HIGH}/trap.c:4: __builtin_trap"])

    def test_package_that_ends_the_process(self) -> None:
        self.write(f"{ABOVE}/module.c", "/* abort(); */ static const char *const text = \"abort()\";\n")
        self.assertEqual(self.ends(), [])
        self.write(f"{ABOVE}/module.h", '#define END()\\\n        Py_FatalError ("no")\n')
        self.assertEqual(self.ends(), [f"{TREE}/{ABOVE}/module.h:2: Py_FatalError"])

    def test_permission_that_nobody_needs(self) -> None:
        name = f"{TREE}/{LOW}/low.c"
        self.assertEqual(self.ends(name), [f"{name} is allowed and ends nothing: take it out"])

    def test_comment_without_a_subject(self) -> None:
        self.write(f"{LOW}/good.c", "/* Offers pages. Of these, some. */\n")
        self.assertEqual(prose.opening(self.top, "daemon"), [])
        self.write(f"{LOW}/one.c", "int a; /*\n * Of pages. */\n")
        self.assertEqual(prose.opening(self.top, "daemon"), [f"{TREE}/{LOW}/one.c:1: Of pages. "])
        with self.assertRaises(SystemExit):
            prose.opening(self.top, "client")

    def test_name_that_says_nothing(self) -> None:
        begin = "static int __attribute__((unused))\nother_begin(void);\nstatic void begin(int (*done)(void))\n{\n}\n"
        self.write(f"{LOW}/one.c", begin)
        self.write(f"{HIGH}/two.c", "/*\nstatic int begin(void);\n*/\nstatic int begin_call(void)\n{\n}\n")
        self.assertEqual(names.check(self.top), [])
        self.write(f"{HIGH}/two.c", "static __attribute__((format(printf, 1, 2))) int *begin(void);\n")
        self.assertEqual(names.check(self.top), [f"begin() is static in {TREE}/{HIGH}/two.c, {TREE}/{LOW}/one.c"])

    def test_wrong_arguments(self) -> None:
        """A check of nothing fails."""
        for name, *words in (["edges", "/nowhere"], ["names", "/nowhere"], ["prose", "/nowhere"], 
                             ["calls"], ["calls", str(SOURCE)], ["calls", str(SOURCE), f"{TREE}=lib.a"]):
            done = subprocess.run([sys.executable, FOLDER / f"check-{name}.py", *words], cwd=self.top,
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (2, ""), name)
            self.assertNotIn("can't open file", done.stderr)

    def test_nothing_to_read(self) -> None:
        empty = self.top / "empty.a"
        subprocess.run(["ar", "rc", empty], check=True)
        for read in (lambda: calls.check(self.top, [(TREE, empty)]), lambda: ends.check(self.top, [(TREE, empty)])):
            with self.assertRaises(SystemExit):
                read()
        (self.top / TREE / ABOVE / "package.c").unlink()
        self.assertEqual(self.ends(), [f"no source is in {TREE}/{ABOVE}"])


if __name__ == "__main__":
    CC = sys.argv[1:] or CC
    unittest.main(argv=sys.argv[:1])
