"""Pages of the documentation that a newcomer types line by line: what they say is typed, and must be answered so."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

LONGEST = 1800.0
"""Seconds that a line may take where the machine is busy."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Typed:
    """A command of the page, and the lines that it is shown to print."""

    command: str
    shown: list[str]


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Language, content, and the sentence before each block."""
    for match in BLOCK.finditer(text):
        yield match[1], match[2], (text[: match.start()].rstrip().splitlines() or [""])[-1]


def typed(content: str) -> list[Typed]:
    """The commands of a block."""
    found: list[Typed] = []
    for line in content.splitlines():
        if line.startswith("$ "):
            found.append(Typed(line.removeprefix("$ "), []))
        else:
            found[-1].shown.append(line)
    return found


def pattern(shown: list[str]) -> str:
    """What the output must match: `...` stands for anything, and blanks for any number of blanks."""
    lines = [r"(.*\n)*" if line == "..." else words(line) + r"\n" for line in shown]
    return "".join(lines)


def words(line: str) -> str:
    parts = [re.sub(r"\\ ", r" +", re.escape(part.strip())) for part in line.split("...")]
    return ".*".join(parts)


def run_page(page: Path, directory: Path, variables: Mapping[str, str] = MappingProxyType({})) -> tuple[int, int]:
    """Type all that the page says in a directory. The result is the number of commands and of files.

    Parameters
    ----------
    page, directory
        The page, and where its commands run.
    variables
        More variables of their environment.
    """
    environment = {
        **os.environ,
        **variables,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "COLUMNS": "160",
        "OMP_NUM_THREADS": "1",
    }
    commands, files = 0, 0
    for language, content, before in blocks(page.read_text(encoding="utf-8")):
        if language in ("yaml", "python"):
            name = re.search(r"`([\w.]+)`[^`]*:$", before)
            assert name, f"{before!r} names no file for the block behind it"
            (directory / name[1]).write_text(content, encoding="utf-8")
            files += 1
            continue
        if language == "sh":  # installing: what this test runs is installed
            continue
        assert language == "console", f"a block of {language!r}: what is to be typed is `console`"
        for one in typed(content):
            done = subprocess.run(
                ["bash", "-c", one.command],
                cwd=directory,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LONGEST,
                stdin=subprocess.DEVNULL,
            )
            assert done.returncode == 0, f"{one.command}\n{done.stdout}\n{done.stderr}"
            assert re.fullmatch(pattern(one.shown), done.stdout), f"{one.command}\nprinted\n{done.stdout}"
            commands += 1
    return commands, files
