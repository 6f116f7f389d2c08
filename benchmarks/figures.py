"""Copy numbers and tables from stored results into the documentation, or report differences.

    python benchmarks/figures.py [--check] [FILE.md ...]

Without files: README.md, all of docs/ and results/README.md. A marked block in Markdown is filled from the result that
its marker names:

    <!-- from results/reference/engine.txt: "compute: " to "goal" -->
    (what stands here is replaced by a code block)
    <!-- end -->

`"START" to "END"` takes the lines from the first one that contains START to the next one that contains END, `"START" to
end` goes to the last line, and `lines REGEX` takes all lines that match. `<!-- from FILE when stored: ... -->` leaves
the block unchanged until this file exists. A number in a sentence has a name:

    a report takes <!-- =report/time -->3.61<!-- end --> s

docs/figures.ini locates each number, in a section for each result. A number is the group of a regular expression in the
only matching line, or in the first matching line after a line that contains some text. A number can also be a value in
a JSON document, given by its keys and a format:

    [results/reference/report.txt]
    report/time = ^time: ([0-9.]+) s
    [results/reference/engine.txt]
    engine/compute = after "compute: " goal, .*: ([0-9.]+)
    [results/reference/engine.json]
    engine/ratio = measured/0/ratio .2f

With --check, no file is changed. The script prints a line for each difference, and exits with status 1 if there is any.
The status is 2 if a marker names something that does not exist.
"""

import argparse
import configparser
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcbench.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "docs/**/*.md", "results/README.md")
_PLACE = re.compile(
    r"<!-- from (?P<block>\S+?)(?P<later> when stored)?: (?P<what>[^\n]+?) -->\n(?P<lines>.*?)(?P<last>^<!-- end -->)"
    r"|<!-- =(?P<name>\S+) -->(?P<figure>[^\n]*?)<!-- end -->",
    re.DOTALL | re.MULTILINE,
)
_BEGIN = re.compile(r"<!-- (?:from \S*results/|=)")
NAMES = "docs/figures.ini"


@dataclass(frozen=True)
class Place:
    """A passage of a document that shows a result, from `start` to `end`, and the text that it should contain."""

    line: int
    source: str
    start: int
    end: int
    wanted: str


def read_names(root: Path) -> dict[str, tuple[str, str]]:
    """Return the result and the key of each named number."""
    names = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#",), interpolation=None)
    names.optionxform = str  # type: ignore[assignment, method-assign]
    names.read(root / NAMES, encoding="utf-8")
    return {name: (source, key) for source in names.sections() for name, key in names.items(source)}


def find_places(text: str, root: Path, names: Mapping[str, tuple[str, str]]) -> Iterator[Place]:
    """Yield all passages of a document, in order.

    Raises
    ------
    UserError
        A marker has no end, or names something that does not exist. The error message begins with the line.
    """
    found_items = list(_PLACE.finditer(text))
    for begin in _BEGIN.finditer(text):
        if not any(match.start() == begin.start() for match in found_items):
            raise UserError(f"{_line(text, begin.start())}: a marker that is not understood, or has no <!-- end -->")
    for match in found_items:
        line, part = _line(text, match.start()), "lines" if match["block"] else "figure"
        if match["name"] and match["name"] not in names:
            raise UserError(f"{line}: {NAMES} has no figure {match['name']!r}")
        source, key = names[match["name"]] if match["name"] else (match["block"], "")
        if match["later"] and not (root / source).exists():
            continue
        try:
            content = (root / source).read_text(encoding="utf-8")
            if match["block"]:
                wanted = "```\n" + "".join(f"{each.rstrip()}\n" for each in _lines(content, match["what"])) + "```\n"
            else:
                wanted = _number(content, key) if source.endswith(".json") else _group(content, key)
        except OSError as error:
            raise UserError(f"{line}: {source}: {error.strerror}") from None
        except (ValueError, re.error) as error:
            raise UserError(f"{line}: {source}: {error}") from None
        yield Place(line, source, *match.span(part), wanted)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _lines(content: str, what: str) -> list[str]:
    """Select lines of a result. Raise ValueError if no line matches."""
    lines = content.splitlines()
    if what.startswith("lines "):
        found_items = [line for line in lines if re.search(what.removeprefix("lines "), line)]
    elif match := re.fullmatch(r'"(.+)" to (?:end|"(.+)")', what):
        start = next((k for k, line in enumerate(lines) if match[1] in line), len(lines))
        last = (k for k in range(start, len(lines)) if match[2] is None or match[2] in lines[k])
        stop = len(lines) - 1 if match[2] is None else next(last, -1)
        found_items = lines[start : stop + 1]
    else:
        raise ValueError(f'{what!r} is neither "START" to "END", "START" to end, nor lines REGEX')
    if not found_items:
        raise ValueError(f"no lines are {what!r}")
    return found_items


def _group(content: str, pattern: str) -> str:
    """Return the regular expression's group in the only matching line, or in the first match after another line.

    Raise ValueError without a match.
    """
    lines = content.splitlines()
    if behind := re.fullmatch(r'after "(.+?)" (.+)', pattern):
        start = next((k + 1 for k, line in enumerate(lines) if behind[1] in line), len(lines))
        lines, pattern = lines[start:], behind[2]
    found_items = [match for line in lines if (match := re.search(pattern, line))]
    if not found_items or (len(found_items) > 1 and not behind) or not found_items[0].re.groups:
        raise ValueError(f"{len(found_items)} lines match {pattern!r}, which needs one, and a group")
    return str(found_items[0][1])


def _number(content: str, key: str) -> str:
    """Return a formatted value, located by its keys. Raise ValueError if the value is missing."""
    way, _, form = key.partition(" ")
    value = json.loads(content)
    for step in way.split("/"):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (LookupError, TypeError, ValueError):
            raise ValueError(f"{step!r} of {way!r} is not there") from None
    return format(value, form)


def main() -> int:
    """Fill or check the documents, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true", help="say what differs, and change nothing")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the repository")
    options = parser.parse_args()
    differing, names = 0, read_names(options.root)
    for path in options.documents or [path for name in DOCUMENTS for path in sorted(options.root.glob(name))]:
        text = path.read_text(encoding="utf-8")
        try:
            found_items = list(find_places(text, options.root, names))
        except UserError as error:
            print(f"{path}:{error}", file=sys.stderr)
            return 2
        for place in reversed(found_items):
            if text[place.start : place.end] == place.wanted:
                continue
            differing += 1
            text = text[: place.start] + place.wanted + text[place.end :]
            message = f"differs from {place.source}: make figures copies it"
            print(f"{path}:{place.line}: {message if options.check else f'filled from {place.source}'}")
        if not options.check:
            path.write_text(text, encoding="utf-8")
    return int(options.check and differing > 0)


if __name__ == "__main__":
    sys.exit(main())
