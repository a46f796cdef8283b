"""Commands of README.md and docs/start, with the output that these pages show."""
import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parents[2]


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
