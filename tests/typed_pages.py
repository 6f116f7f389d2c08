"""Commands on documentation pages. Each command is run and must print the output that the page shows."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

LONGEST = 1800.0
"""Timeout of a command in seconds, which suffices on a busy machine."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Typed:
    """A command on the page, and the output shown there."""

    command: str
    shown: list[str]


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the language, the content, and the preceding sentence of each block."""
    for match in BLOCK.finditer(text):
        yield match[1], match[2], (text[: match.start()].rstrip().splitlines() or [""])[-1]


def typed(content: str) -> list[Typed]:
    """Return the commands of a block."""
    commands: list[Typed] = []
    for line in content.splitlines():
        if line.startswith("$ "):
            commands.append(Typed(line.removeprefix("$ "), []))
        else:
            commands[-1].shown.append(line)
    return commands


def pattern(shown: list[str]) -> str:
    """Return a pattern for the output. `...` matches anything, and a space matches any number of spaces."""
    lines = [r"(.*\n)*" if line == "..." else line_pattern(line) + r"\n" for line in shown]
    return "".join(lines)


def line_pattern(line: str) -> str:
    parts = [re.sub(r"\\ ", r" +", re.escape(part.strip())) for part in line.split("...")]
    return ".*".join(parts)


def run_page(page: Path, directory: Path, variables: Mapping[str, str] = MappingProxyType({})) -> tuple[int, int]:
    """Run the commands of a page in a directory. Return the number of commands and the number of files.

    Parameters
    ----------
    page, directory
        Page, and working directory of its commands.
    variables
        Additional environment variables for the commands.
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
            assert name, f"{before!r} names no file for the block after it"
            (directory / name[1]).write_text(content, encoding="utf-8")
            files += 1
            continue
        if language == "sh":  # installation, which this test does not repeat
            continue
        assert language == "console", f"a block of {language!r}: commands are in blocks of `console`"
        for command in typed(content):
            done = subprocess.run(
                ["bash", "-c", command.command],
                cwd=directory,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LONGEST,
                stdin=subprocess.DEVNULL,
            )
            assert done.returncode == 0, f"{command.command}\n{done.stdout}\n{done.stderr}"
            assert re.fullmatch(pattern(command.shown), done.stdout), f"{command.command}\nprinted\n{done.stdout}"
            commands += 1
    return commands, files
