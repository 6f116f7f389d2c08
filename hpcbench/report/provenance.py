"""Where results come from: who submitted what, with which code, and what it ran on; each fact with its file."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.collect.lines import member, printable, text
from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract.mark import read_mark
from hpcbench.files import read_json
from hpcbench.report import surroundings
from hpcbench.report.surroundings import Finding, differing


@dataclass(frozen=True)
class Fact:
    """One thing that is known."""

    name: str
    value: str
    source: str | None = None
    """File, or ``file:line``, that says it first; None where only the logs' lines together do."""
    of: tuple[str, ...] = ()
    """The runs, nodes or jobs that it holds for; empty where it holds for all that say anything of it."""


@dataclass(frozen=True)
class Group:
    """Facts of one kind."""

    title: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Provenance:
    """All that is known of where a submission's results come from."""

    groups: tuple[Group, ...]
    """In the order to show them in; none is empty."""
    notes: tuple[str, ...]
    """Sentences: what makes its runs less comparable, or harder to repeat."""


def provenance(submission: Submission) -> Provenance:
    """Gather it from the submission's files and the runs' logs; what is missing is left out."""
    root, runs = submission.root, submission.runs
    names = [job.id for job in submission.plan.jobs]
    groups = [
        Group("Submission", tuple(_submitted(submission))),
        Group("Software of the runs", _merged(surroundings.software(runs))),
        Group("Nodes", (*_merged(surroundings.nodes(runs)), *_merged(surroundings.clocks(runs)))),
        Group("Ranks, as the launcher placed them", _merged(surroundings.binding(runs))),
        Group("Jobs", tuple(_jobs(root, names) if root else ())),
        Group("Packages of the runs", _merged(surroundings.packages(runs))),
    ]
    notes = [*differences(runs), *_changed(root, runs)]
    return Provenance(tuple(group for group in groups if group.facts), tuple(notes))


def differences(runs: Sequence[RunResult]) -> list[str]:
    """Sentences on what the runs of a comparison, or their nodes, differ in beside what is compared.

    Parameters
    ----------
    runs
        Those that stand in one comparison, such as the runs of a cell.
    """
    return [
        *differing("runs", surroundings.software(runs)),
        *differing("runs", surroundings.packages(runs)),
        *differing("nodes", surroundings.nodes(runs)),
        *differing("runs", surroundings.binding(runs)),
    ]


def _submitted(submission: Submission) -> Iterator[Fact]:
    plan, root = submission.plan, submission.root
    said = [("study", plan.study, "study.yaml"), ("site", plan.site, "site.json")]
    said += [("scheduler", plan.scheduler or "", "submission.json"), ("hpcbench", plan.version, "submission.json")]
    said += [("submitted", plan.time, "submission.json")]
    for name, words, file in said:
        if words:
            yield Fact(name, printable(words), str(root / file) if root else None)
    if root is None:
        return
    if checked := text(read_json(root / "site.json"), "checked"):
        yield Fact("site file checked", printable(checked), str(root / "site.json"))
    path = root / "provenance" / "submit.json"
    kept = read_json(path) or {}
    for name in ("user", "host", "directory", "python"):
        if value := text(kept, name):
            yield Fact(name, printable(value), str(path))
    if isinstance(command := kept.get("command"), list):
        yield Fact("command", printable(" ".join(str(word) for word in command)), str(path))
    for name, revision, dirty in _revisions(kept):
        yield Fact(f"revision of {name}", revision + (", with changes" if dirty else ""), str(path))


def _jobs(root: Path, names: Iterable[str]) -> Iterator[Fact]:
    for job in names:
        path = root / "jobs" / job / "status.json"
        mark = read_mark(path.parent)
        if mark is None or not mark.readable:
            continue
        parts = [f"id {mark.id}"] if mark.id else []
        parts += [f"on {surroundings.some(list(mark.hosts))}"] if mark.hosts else []
        parts += [f"{mark.start or 'unknown'} to {mark.end or 'unknown'}", f"attempt {mark.attempt}"]
        parts += [f"exit {mark.exit}"] if mark.exit is not None else []
        yield Fact(job, printable(", ".join(parts)), str(path))
        for kept in (path.with_name("job.sh"), *sorted(path.with_name("provenance").glob("*.txt"))):
            if kept.is_file():
                yield Fact(printable(f"{job}: {kept.stem}", 80), printable(kept.name, 80), str(kept))


def _changed(root: Path | None, runs: Sequence[RunResult]) -> Iterator[str]:
    """Code that no revision gives back."""
    for name, revision, dirty in _revisions(read_json(root / "provenance" / "submit.json")) if root else ():
        if dirty:
            place = printable(str(root / "provenance" / f"{name}.diff")) if root else ""
            yield f"At submission the checkout of {name} had changes beside its revision {revision[:12]}: {place}."
    said: dict[str, list[str]] = {}
    for one in surroundings.software(runs):
        if one.name == "revision" and one.value.endswith("-dirty"):
            said.setdefault(one.value.removesuffix("-dirty")[:12], []).append(one.who)
    for revision, who in said.items():
        yield f"hpcbench had changes beside its revision {revision} when it ran {surroundings.some(who)}."


def _revisions(kept: Any) -> Iterator[tuple[str, str, bool]]:
    found = member(kept, "git")
    for name in found if isinstance(found, dict) else ():
        if revision := text(found, name, "revision"):
            yield printable(name, 40), printable(revision, 80), member(found, name, "dirty") is True


def _merged(findings: Iterable[Finding]) -> tuple[Fact, ...]:
    """One fact a name and value."""
    said: dict[tuple[str, str], list[Finding]] = {}
    everyone: dict[str, set[str]] = {}
    for one in findings:
        said.setdefault((one.name, one.value), []).append(one)
        everyone.setdefault(one.name, set()).add(one.who)
    facts: dict[str, list[Fact]] = {name: [] for name in everyone}
    for (name, value), own in said.items():
        who = tuple(dict.fromkeys(one.who for one in own))
        facts[name].append(Fact(name, value, own[0].source, () if len(who) == len(everyone[name]) else who))
    return tuple(fact for own in facts.values() for fact in own)
