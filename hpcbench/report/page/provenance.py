"""Where a submission's figures come from: its study and site, versions, nodes, bindings and revisions.

Environment variables stay in their files: no filter knows all secrets, and a page is passed on.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.collect.lines import member, text
from hpcbench.collect.submission import RunResult, Submission, read_marker

LONGEST = 20_000
"""Characters of a file that are shown."""
_MOST = 200
"""Rows of a list that are shown."""
_OF_JOBS = {
    "modules.txt": "Modules",
    "system.txt": "System",
    "binding.txt": "Launcher's report of the binding",
}
_OF_SUBMISSION = {"study.yaml": "Study file", "site.yaml": "Site file", "site.json": "Site, as resolved"}


@dataclass(frozen=True)
class Part:
    """One thing that is known of where figures come from."""

    title: str
    rows: tuple[tuple[str, ...], ...] = ()
    """Below `heads`, where there are some; else a name and what it is."""
    heads: tuple[str, ...] = ()
    text: str = ""
    """A file, word for word."""
    path: Path | None = None


def parts(submission: Submission) -> list[Part]:
    """What a submission's directory and its logs tell, each thing once; what they do not tell is left out."""
    found = [_submission(submission), _software(submission.runs), _nodes(submission.runs), *_bindings(submission.runs)]
    if submission.root is not None:
        found += [*_files(submission.root), _packages(submission.root)]
    return [part for part in found if part.rows or part.text]


def _submission(submission: Submission) -> Part:
    plan = submission.plan
    said = _submit(submission.root) if submission.root else {}
    rows = [
        ("study", plan.study),
        ("site", plan.site),
        ("scheduler", plan.scheduler),
        ("submitted", plan.time),
        ("from", text(said, "host") or ""),
        ("command", " ".join(map(str, command)) if isinstance(command := said.get("command"), list) else ""),
        ("hpcbench", plan.version),
        ("Python of the command", text(said, "python") or ""),
    ]
    git = said.get("git")
    for name, place in git.items() if isinstance(git, dict) else ():
        changed = ", with changes that are not committed" if member(place, "dirty") is True else ""
        rows.append((f"revision of {name}", f"{text(place, 'revision') or 'unknown'}{changed}"))
    return Part("Submission", tuple((name, value) for name, value in rows if value))


def _software(runs: list[RunResult]) -> Part:
    """Whatever the ranks say of their versions and back ends in one word."""
    counts: dict[str, Counter[str]] = {}
    for run in runs:
        for name, value in (run.log.data("environment") if run.log else {}).items():
            if name != "event" and isinstance(value, str | int | float):
                counts.setdefault(name, Counter())[_word(value)] += 1
    return Part("Software of the runs", tuple((name, _shares(values)) for name, values in counts.items()))


def _nodes(runs: list[RunResult]) -> Part:
    counts: Counter[str] = Counter()
    for run in runs:
        hosts = {host for entry in _world(run) if (host := text(entry, "host"))}
        counts.update(hosts or ({run.host} if run.host else set()))
    rows = tuple((host, _plural(count, "run")) for host, count in sorted(counts.items()))
    return Part("Nodes", rows[:_MOST] + _rest(len(rows)))


def _bindings(runs: list[RunResult]) -> Iterator[Part]:
    """Where the launcher really put the ranks, once for all runs that lie alike."""
    alike: Counter[tuple[tuple[str, ...], ...]] = Counter()
    for run in runs:
        if rows := tuple(_place(entry) for entry in _world(run)):
            alike[rows] += 1
    for rows, count in alike.most_common(8):
        heads = ("rank", "host", "device", "threads", "cores")
        yield Part(f"Binding of the ranks ({_plural(count, 'run')})", rows[:_MOST] + _rest(len(rows)), heads)


def _place(entry: Any) -> tuple[str, ...]:
    cores = text(entry, "core_ranges") or _word(member(entry, "cores"))
    return (*(_word(member(entry, name)) for name in ("rank", "host", "device", "threads")), cores)


def _files(root: Path) -> Iterator[Part]:
    for name, title in _OF_SUBMISSION.items():
        yield Part(title, text=_read(root / name), path=root / name)
    for name, title in _OF_JOBS.items():
        alike: dict[str, list[Path]] = {}
        for path in sorted(root.glob(f"jobs/*/provenance/{name}")):
            alike.setdefault(_read(path), []).append(path)
        for words, paths in list(alike.items())[:8]:
            yield Part(f"{title} ({_plural(len(paths), 'job')})", text=words, path=paths[0])


def _packages(root: Path) -> Part:
    found = _submit(root).get("packages")
    rows = tuple((name, _word(version)) for name, version in found.items()) if isinstance(found, dict) else ()
    return Part("Packages beside hpcbench", rows[: 5 * _MOST], path=root / "provenance" / "submit.json")


def _submit(root: Path) -> dict[str, Any]:
    found = read_marker(root / "provenance" / "submit.json")
    return found if isinstance(found, dict) else {}


def _world(run: RunResult) -> list[Any]:
    world = run.log.data("environment").get("world") if run.log else None
    return world if isinstance(world, list) else []


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            words = stream.read(LONGEST + 1)
    except OSError:
        return ""
    return words if len(words) <= LONGEST else words[:LONGEST] + "\n[the rest is in the file]"


def _shares(values: Counter[str]) -> str:
    """One value, or each with the number of runs that have it."""
    if len(values) == 1:
        return next(iter(values))
    return "; ".join(f"{value} ({_plural(count, 'run')})" for value, count in values.most_common(8))


def _word(value: Any) -> str:
    """A value of JSON in a word or two."""
    if value is None:
        return "-"
    return (value if isinstance(value, str) else json.dumps(value))[:200]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _rest(count: int) -> tuple[tuple[str, ...], ...]:
    return ((f"and {count - _MOST} more",),) if count > _MOST else ()
