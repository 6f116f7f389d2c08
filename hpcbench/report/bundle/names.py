"""Names of hosts and users, and what stands in their place in a bundle that is passed on.

A name is replaced wherever it stands as a word: in logs, scripts, paths and names of files. The same name becomes the
same word everywhere, so that a report of the bundle says the same of them. What is a word of the files' own language,
such as a user called ``data``, is replaced only where it can be nothing else: in paths and addresses.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcbench.collect.submission import Submission
from hpcbench.contract import step_line
from hpcbench.contract.mark import read_mark
from hpcbench.contract.submission import PlannedJob
from hpcbench.contract.values import text
from hpcbench.files import read_json

_PLAIN = re.compile(r"[A-Za-z0-9]")
_LETTER = "A-Za-z0-9_"


@dataclass(frozen=True)
class Names:
    """What is replaced, and by what.

    Attributes
    ----------
    words
        Name -> what stands in its place.
    shared
        Those names that are also words of the files.
    """

    words: Mapping[str, str]
    shared: frozenset[str] = frozenset()

    def replace(self, content: str) -> str:
        """Text without the names."""
        if not self.words:
            return content
        for pattern in self._patterns:
            content = pattern.sub(lambda found: self.words[found[0]], content)
        return content

    def left(self, content: str) -> Iterator[tuple[str, int]]:
        """Names that are still there, within longer words, each with the number of its line."""
        for name in self.words:
            if len(name) > 2 and name not in self.shared and name.lower() in content.lower():
                for number, line in enumerate(content.splitlines(), 1):
                    if name.lower() in line.lower():
                        yield name, number

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return list(self._compiled())

    def _compiled(self) -> Iterator[re.Pattern[str]]:
        own = sorted(self.words, key=len, reverse=True)
        plain = "|".join(re.escape(name) for name in own if name not in self.shared)
        if plain:
            yield re.compile(f"(?<![{_LETTER}])(?:{plain})(?![{_LETTER}])")
        shared = "|".join(re.escape(name) for name in own if name in self.shared)
        if shared:
            yield re.compile(f"(?<=/home/)(?:{shared})(?![{_LETTER}])|(?<![{_LETTER}])(?:{shared})(?=@)")


def names_of(submissions: Iterable[Submission], replaced: Mapping[str, str], *, hosts_and_users: bool) -> Names:
    """The names in some submissions.

    Parameters
    ----------
    submissions
        Whose files are passed on.
    replaced
        Further words, each with what stands in its place.
    hosts_and_users
        Whether those are replaced that the submissions know.
    """
    own = list(submissions)
    words: dict[str, str] = dict(replaced)
    if hosts_and_users:
        hosts = dict.fromkeys(name for one in own for name in _hosts(one) if _PLAIN.search(name))
        users = dict.fromkeys(name for one in own for name in _users(one) if _PLAIN.search(name))
        for prefix, found in (("host", hosts), ("user", users)):
            new = [name for name in found if name not in words]
            words |= {name: f"{prefix}-{k}" for k, name in enumerate(new, 1)}
            words |= {short: words[name] for name in new if (short := name.partition(".")[0]) and short not in words}
    known = {word for one in own for word in _language(one)}
    return Names(words, frozenset(name for name in words if name in known and name not in replaced))


def _hosts(submission: Submission) -> Iterator[str]:
    for run in submission.runs:
        yield from (rank.host for rank in run.log.ranks if rank.host) if run.log else ()
        if run.host:
            yield run.host
    root = submission.root
    jobs: list[PlannedJob] = submission.plan.jobs
    for mark in (read_mark(root / "jobs" / job.id) for job in jobs) if root else ():
        if mark is not None:
            yield from (mark.host,) if mark.host else ()
            yield from mark.hosts or ()
    said = text(_submitted(submission), "host")
    if said:
        yield said


def _users(submission: Submission) -> Iterator[str]:
    about = _submitted(submission)
    for found in (text(about, "user"), *(text(about, "environment", name) for name in ("USER", "LOGNAME"))):
        if found:
            yield found
    home = text(about, "environment", "HOME")
    if home and Path(home).name:
        yield Path(home).name


def _submitted(submission: Submission) -> Any:
    return read_json(submission.root / "provenance" / "submit.json") if submission.root else None


def _language(submission: Submission) -> Iterator[str]:
    """Words that the files' own readers look for."""
    yield from (one.printed.word for one in step_line.QUANTITIES if one.printed)
    yield from (submission.plan.study, submission.plan.site)
    for run in submission.runs:
        yield from (run.id, run.scheme, run.pairing, *re.split("[-_.]", run.id))
        yield from _keys(run.settings.raw)
        scheme = run.settings.scheme
        yield from map(str, (scheme.name, scheme.algorithm, scheme.default))
        for event in run.log.events if run.log else ():
            yield from (event.name, *_keys(event.raw))
    if submission.root:
        for path in ("submission.json", "site.json"):
            yield from _keys(read_json(submission.root / path) or {})


def _keys(data: Any) -> Iterator[str]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield str(key)
            yield from _keys(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from _keys(value)


def without_host_lists(data: dict[str, Any]) -> dict[str, Any]:
    """``scheduler.json`` without the schedulers' way to write several hosts (``n[1-4]``), which holds no name whole."""
    for seen in data.values():
        word = seen.get("word") if isinstance(seen, dict) else None
        if isinstance(word, dict):
            word["hosts"] = ""
            if isinstance(word.get("accounting"), dict):
                word["accounting"].pop("NodeList", None)
    return json.loads(json.dumps(data))  # type: ignore[no-any-return]
