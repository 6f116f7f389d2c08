"""Replacement of host and user names in a bundle.

Names are replaced in logs, scripts, paths and file names, but only where they form a complete word. Each name has one
replacement, so that a report of the bundle can still distinguish hosts. A name that also occurs as a keyword in the
files, such as a user called ``data``, is replaced only in paths and addresses.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.contract import step_line
from hpcbench.contract.mark import read_mark
from hpcbench.contract.values import get_member, get_text
from hpcbench.files import read_json

_LETTER = "A-Za-z0-9_"
_KEY = re.compile(r'"([^"\\]+)"\s*:')


@dataclass(frozen=True)
class Names:
    """Names and their replacements."""

    replacements: Mapping[str, str]
    shared: frozenset[str] = frozenset()
    """Names that also occur as keywords in the files."""

    def replace(self, content: str) -> str:
        """Replace the names in a text."""
        for pattern in self._patterns:
            content = pattern.sub(lambda match: self.replacements[match[0]], content)
        return content

    def lines_with_parts(self, content: bytes) -> list[int]:
        """Return the numbers of lines in which a name remains as part of a longer word."""
        names = [name.lower() for name in self.replacements if len(name) > 2 and name not in self.shared]
        lines = content.decode("utf-8", "replace").lower().splitlines() if names else []
        return [number for number, line in enumerate(lines, 1) if any(name in line for name in names)]

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        longest_first = sorted(self.replacements, key=len, reverse=True)
        plain = "|".join(re.escape(name) for name in longest_first if name not in self.shared)
        shared = "|".join(re.escape(name) for name in longest_first if name in self.shared)
        begin, end = f"(?<![{_LETTER}])", f"(?![{_LETTER}])"
        patterns = [f"{begin}(?:{plain}){end}"] if plain else []
        patterns += [f"(?<=/home/)(?:{shared}){end}|{begin}(?:{shared})(?=@)"] if shared else []
        return [re.compile(pattern) for pattern in patterns]


def find_names(submissions: Sequence[Submission], replaced: Mapping[str, str], *, hosts_and_users: bool) -> Names:
    """Return the names to replace: the given words, and optionally host and user names of the submissions."""
    replacements = dict(replaced)
    language: set[str] = set()
    if hosts_and_users:
        for prefix, names_in in (("host", _list_hosts), ("user", _list_users)):
            listed = dict.fromkeys(name for submission in submissions for name in names_in(submission) if name)
            new = [name for name in listed if re.search("[A-Za-z0-9]", name) and name not in replacements]
            replacements |= {name: f"{prefix}-{k}" for k, name in enumerate(new, 1)}
            replacements |= {
                short: replacements[name]
                for name in new
                if (short := name.partition(".")[0]) and short not in replacements
            }
        language = {word for submission in submissions for word in _list_file_words(submission)}
    return Names(replacements, frozenset(replacements.keys() & language - replaced.keys()))


def _list_hosts(submission: Submission) -> Iterator[str | None]:
    for run in submission.runs:
        yield from (rank.host for rank in run.log.ranks) if run.log else ()
        yield run.host
    for job in submission.plan.jobs:
        mark = read_mark(submission.root / "jobs" / job.id) if submission.root else None
        if mark is not None:
            yield from (mark.host, *(mark.hosts or ()))
    yield get_text(_read_provenance(submission), "host")


def _list_users(submission: Submission) -> Iterator[str | None]:
    about = _read_provenance(submission)
    yield get_text(about, "user")
    yield from (get_text(about, "environment", name) for name in ("USER", "LOGNAME"))
    yield Path(get_text(about, "environment", "HOME") or "").name


def _read_provenance(submission: Submission) -> Any:
    return read_json(submission.root / "provenance" / "submit.json") if submission.root else None


def _list_file_words(submission: Submission) -> Iterator[str]:
    """Yield the keywords that parsers of the files depend on."""
    yield from (quantity.printed.word for quantity in step_line.QUANTITIES if quantity.printed)
    yield from (submission.plan.study, submission.plan.site)
    for run in submission.runs:
        yield from (run.id, run.scheme, run.pairing, *re.split("[-_.]", run.id))
        scheme = run.settings.scheme
        yield from map(str, (scheme.name, scheme.algorithm, scheme.default))
    for pattern in ("*.json", "runs/*/run.json", "runs/*/log.txt"):
        for file in submission.root.glob(pattern) if submission.root else ():
            yield from _KEY.findall(file.read_text(encoding="utf-8", errors="replace"))


def remove_host_lists(data: dict[str, Any]) -> dict[str, Any]:
    """Remove host lists in scheduler notation (``n[1-4]``) from ``scheduler.json``."""
    for answer in data.values():
        word = get_member(answer, "word")
        if isinstance(word, dict):
            word["hosts"] = ""
            if isinstance(word.get("accounting"), dict):
                word["accounting"].pop("NodeList", None)
    return data
