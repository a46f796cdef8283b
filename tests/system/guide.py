"""Commands of README.md, docs/start and docs/operate, with the output that these pages show."""
import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def listed(test):
    """The commands that tests/tools/commands.txt leaves to this test, in order."""
    parts = re.split(r"^\[(.*)\]$", (SOURCE / "tests/tools/commands.txt").read_text(), flags=re.M)
    (lines,) = (text for name, text in zip(parts[1::2], parts[2::2]) if name == test)
    found = [line for line in lines.splitlines() if line and " = " not in line]
    assert found, f"commands.txt has none for {test}"
    return found


class Guide:
    """A page: its sections by title, each with commands and their expected output."""

    def __init__(self, page):
        self._page, self._text = page, (SOURCE / page).read_text()

    def _blocks(self, section):
        """(language, text) of each block, in order."""
        parts = f"\n{self._text}".split(f"\n## {section}\n")
        assert len(parts) == 2, f"{self._page} has no section {section}"
        return re.findall(r"^```(\w*)\n(.*?)^```", re.split(r"^## ", parts[1], flags=re.M)[0], re.M | re.S)

    def commands(self, section):
        """Lines of the section's shell blocks, without comments."""
        text = "".join(text for language, text in self._blocks(section) if language == "sh")
        return [re.sub(r" +#.*", "", line) for line in text.splitlines()]

    def inline(self, title, word):
        """The one command in a sentence below the title that begins so."""
        text = re.split(r"^#+ ", self._text.split(f"# {title}\n")[1], flags=re.M)[0]
        (command,) = re.findall(rf"`({word} [^`]*)`", text)
        return command

    def program(self, language):
        """The one program in this language."""
        (text,) = re.findall(rf"^```{language}\n(.*?)^```", self._text, re.M | re.S)
        return text

    def check(self, section, said):
        """`said` has each line that the section shows: "..." stands for anything, blanks for one or more."""
        shown = "".join(text for language, text in self._blocks(section) if not language).splitlines()
        assert shown, f"{self._page}, {section}: shows no output"
        for line in shown:
            pattern = r"\s+".join(map(re.escape, line.split())).replace(re.escape("..."), ".*")
            assert re.search(f"^{pattern}\\s*$", said, re.M), f"{self._page}, {section}: {line!r} isn't in:\n{said}"
