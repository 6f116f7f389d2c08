"""Provenance of results, and differences between their environments. Each fact names its source file."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.collect.submission import RunResult, Submission
from hpcbench.contract.events import Environment, Rank, Start
from hpcbench.contract.mark import read_mark
from hpcbench.contract.text import make_printable
from hpcbench.contract.values import get_member, get_text
from hpcbench.files import read_json

_MOMENTARY = ("cpu_mhz", "gpu.clock_mhz", "gpu.memory_clock_mhz")
"""Facts about a node that change continuously."""
_SENTENCES = 4
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
_OF_A_RANK = (
    *("rank", "local_rank", "host", "machine", "pid", "cores", "core_ranges", "numa", "threads"),
    *("visible", "nics", "environment"),
    *("gpu.number", "gpu.uuid", "gpu.pci", "gpu.visible", "gpu.peers"),
)
"""Facts in rank records that do not describe the node."""


@dataclass(frozen=True)
class Finding:
    """A fact from a single source."""

    name: str
    value: str
    subject: str
    """Run or node that the fact describes."""
    source: str
    """File, or ``file:line``."""


def list_software(runs: Iterable[RunResult]) -> Iterator[Finding]:
    """Yield versions and settings detected by the workers, excluding packages."""
    for run, where, event in _read_environments(runs):
        if run.log and (start := run.log.event(Start)) and start.version:
            yield Finding("hpcbench", make_printable(start.version, 80), run.id, run.log.where(start.line))
        facts = {key: value for key, value in event.raw.items() if key not in ("event", "world", "hosts", "packages")}
        yield from (Finding(name, value, run.id, where) for name, value in _flatten(facts))


def list_packages(runs: Iterable[RunResult]) -> Iterator[Finding]:
    """Yield the Python packages of the runs with their versions."""
    before: dict[str, Any] = {}
    names: list[tuple[str, str]] = []
    for run, where, event in _read_environments(runs):
        if (versions := event.packages) is not None:
            if versions != before:  # Package lists are long and rarely differ.
                before, names = versions, list(_flatten(versions))
            yield from (Finding(name, value, run.id, where) for name, value in names)


def list_nodes(runs: Iterable[RunResult]) -> Iterator[Finding]:
    """Yield hardware facts from the rank records, once per node and without clock frequencies."""
    seen: set[tuple[str, str, str]] = set()
    for host, where, name, value in _list_facts_of_nodes(runs):
        if name not in _MOMENTARY and (host, name, value) not in seen:
            seen.add((host, name, value))
            yield Finding(name, value, host, where)


def list_clocks(runs: Iterable[RunResult]) -> Iterator[Finding]:
    """Yield the range of each clock frequency at the start of the runs, because single readings always differ."""
    seen: dict[str, list[tuple[float, str]]] = {}
    for _, where, name, value in _list_facts_of_nodes(runs):
        if name in _MOMENTARY and _NUMBER.fullmatch(value):
            seen.setdefault(name, []).append((float(value), where))
    for name, readings in seen.items():
        (low, where), (high, _) = min(readings), max(readings)
        yield Finding(name, f"{low:g} to {high:g}", "", where)


def list_bindings(runs: Iterable[RunResult]) -> Iterator[Finding]:
    """Yield the rank placement chosen by the launcher, by local rank."""
    seen: set[tuple[str, str, str]] = set()
    for run, where, rank in _list_ranks(runs):
        name = f"local rank {'unknown' if rank.local_rank is None else rank.local_rank}"
        parts = [f"cores {'unknown' if rank.core_ranges is None else rank.core_ranges}"]
        parts += [f"NUMA {','.join(str(node) for node in rank.numa)}"] if rank.numa is not None else []
        parts += [rank.device] if rank.device else []
        for variables in (rank.visible, rank.nics):
            parts += [f"{variable}={value}" for variable, value in (variables or {}).items()]
        value = make_printable("; ".join(parts))
        if (run.id, name, value) not in seen:
            seen.add((run.id, name, value))
            yield Finding(name, value, run.id, where)


def describe_differing(kind: str, findings: Iterable[Finding]) -> list[str]:
    """Return one sentence for each name that has different values, up to a maximum number of sentences.

    Runs or nodes (`kind`) without a value are ignored.
    """
    stated: dict[str, dict[str, dict[str, None]]] = {}
    for finding in findings:
        stated.setdefault(finding.name, {}).setdefault(finding.subject, {})[finding.value] = None
    sentences = []
    for name, values in stated.items():
        groups: dict[frozenset[str], list[str]] = {}
        for who, values_of in values.items():
            groups.setdefault(frozenset(values_of), []).append(who)
        if len(groups) > 1:
            shown = [f"{' and '.join(list(values[group[0]])[:3])} ({list_some(group)})" for group in groups.values()]
            sentences.append(f"The {kind} differ in {name}: {', '.join(shown[:4])}{', ...' if len(shown) > 4 else ''}.")
    more = len(sentences) - _SENTENCES
    return sentences[:_SENTENCES] + ([f"The {kind} differ in {more} more facts."] if more > 0 else [])


def strip_device_number(device: str) -> str:
    """Return ``cuda NAME`` for ``cuda:1 NAME``. Device numbers differ between ranks."""
    return re.sub(r"^(\w+):[0-9]+", r"\1", device)


def list_some(names: list[str]) -> str:
    """Return the first three names, and the number of remaining names."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(make_printable(name, 60) for name in names[:3]) + more


def _read_environments(runs: Iterable[RunResult]) -> Iterator[tuple[RunResult, str, Environment]]:
    for run in runs:
        if run.log and (event := run.log.event(Environment)):
            yield run, run.log.where(event.line), event


def _list_ranks(runs: Iterable[RunResult]) -> Iterator[tuple[RunResult, str, Rank]]:
    for run, where, event in _read_environments(runs):
        yield from ((run, where, rank) for rank in event.world or ())


def _list_facts_of_nodes(runs: Iterable[RunResult]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the node, source, name and value of each fact."""
    for _, where, event in _read_environments(runs):
        for host in event.hosts or ():
            parts = [{key: value for key, value in host.raw.items() if key not in ("host", "gpus")}]
            parts += [{"gpus": len(host.gpus)}, *({"gpu": gpu.raw} for gpu in host.gpus)] if host.gpus else []
            yield from (
                (_clean_host(host.host), where, name, value) for part in parts for name, value in _flatten(part)
            )
        for rank in event.world or ():
            facts = {key: value for key, value in rank.raw.items() if key not in _OF_A_RANK}
            yield from (
                (_clean_host(rank.host), where, name, strip_device_number(value)) for name, value in _flatten(facts)
            )


def _clean_host(name: str | None) -> str:
    return make_printable(name or "unknown", 80)


def _flatten(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the values of nested objects with joined keys. Nulls and facts about single ranks are omitted."""
    for key, value in data.items():
        name = prefix + make_printable(key, 60)
        if name in _OF_A_RANK or value is None:
            continue
        if isinstance(value, dict):
            if len(prefix) < 200:
                yield from _flatten(value, f"{name}.")
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            yield name, make_printable(", ".join(value))
        else:
            yield name, make_printable(value if isinstance(value, str) else json.dumps(value))


@dataclass(frozen=True)
class Fact:
    """A fact with its source."""

    name: str
    value: str
    source: str | None = None
    """First source as file or ``file:line``, or None if the fact is derived from all logs together."""
    of: tuple[str, ...] = ()
    """Runs, nodes or jobs that the fact applies to. The tuple is empty if the fact applies to all."""


@dataclass(frozen=True)
class FactGroup:
    """Facts of one kind."""

    title: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Provenance:
    """All known facts about the provenance of a submission's results."""

    groups: tuple[FactGroup, ...]
    """Non-empty groups, in display order."""
    notes: tuple[str, ...]
    """Sentences about facts that make the runs less comparable or harder to reproduce."""


def gather_provenance(submission: Submission) -> Provenance:
    """Gather facts from the submission's files and the runs' logs. Missing facts are omitted."""
    root, runs = submission.root, submission.runs
    names = [job.id for job in submission.plan.jobs]
    groups = [
        FactGroup("Submission", tuple(_list_submission_facts(submission))),
        FactGroup("Software of the runs", _merge_findings(list_software(runs))),
        FactGroup("Nodes", (*_merge_findings(list_nodes(runs)), *_merge_findings(list_clocks(runs)))),
        FactGroup("Ranks, as the launcher placed them", _merge_findings(list_bindings(runs))),
        FactGroup("Jobs", tuple(_list_job_facts(root, names) if root else ())),
        FactGroup("Packages of the runs", _merge_findings(list_packages(runs))),
    ]
    notes = [*describe_differences(runs), *_describe_changes(root, runs)]
    return Provenance(tuple(group for group in groups if group.facts), tuple(notes))


def describe_differences(runs: Sequence[RunResult]) -> list[str]:
    """Describe unintended differences between compared runs or their nodes."""
    return [
        *describe_differing("runs", list_software(runs)),
        *describe_differing("runs", list_packages(runs)),
        *describe_differing("nodes", list_nodes(runs)),
        *describe_differing("runs", list_bindings(runs)),
    ]


def _list_submission_facts(submission: Submission) -> Iterator[Fact]:
    plan, root = submission.plan, submission.root
    stated = [("study", plan.study, "study.yaml"), ("site", plan.site, "site.json")]
    stated += [("scheduler", plan.scheduler or "", "submission.json"), ("hpcbench", plan.version, "submission.json")]
    stated += [("submitted", plan.time, "submission.json")]
    for name, text, file in stated:
        if text:
            yield Fact(name, make_printable(text), str(root / file) if root else None)
    if root is None:
        return
    if checked := get_text(read_json(root / "site.json"), "checked"):
        yield Fact("site file checked", make_printable(checked), str(root / "site.json"))
    path = root / "provenance" / "submit.json"
    recorded = read_json(path) or {}
    for name in ("user", "host", "directory", "python"):
        if value := get_text(recorded, name):
            yield Fact(name, make_printable(value), str(path))
    if isinstance(command := recorded.get("command"), list):
        yield Fact("command", make_printable(" ".join(str(word) for word in command)), str(path))
    for name, revision, dirty in _list_revisions(recorded):
        yield Fact(f"revision of {name}", revision + (", with changes" if dirty else ""), str(path))


def _list_job_facts(root: Path, names: Iterable[str]) -> Iterator[Fact]:
    for job in names:
        path = root / "jobs" / job / "status.json"
        mark = read_mark(path.parent)
        if mark is None or not mark.readable:
            continue
        parts = [f"id {mark.id}"] if mark.id else []
        parts += [f"on {list_some(list(mark.hosts))}"] if mark.hosts else []
        parts += [f"{mark.start or 'unknown'} to {mark.end or 'unknown'}", f"attempt {mark.attempt}"]
        parts += [f"exit {mark.exit}"] if mark.exit is not None else []
        yield Fact(job, make_printable(", ".join(parts)), str(path))
        for file in (path.with_name("job.sh"), *sorted(path.with_name("provenance").glob("*.txt"))):
            if file.is_file():
                yield Fact(make_printable(f"{job}: {file.stem}", 80), make_printable(file.name, 80), str(file))


def _describe_changes(root: Path | None, runs: Sequence[RunResult]) -> Iterator[str]:
    """Yield sentences about code with uncommitted changes."""
    for name, revision, dirty in _list_revisions(read_json(root / "provenance" / "submit.json")) if root else ():
        if dirty:
            place = make_printable(str(root / "provenance" / f"{name}.diff")) if root else ""
            yield (
                f"At submission, the checkout of {name} had uncommitted changes to revision {revision[:12]}: see "
                f"{place}."
            )
    stated: dict[str, list[str]] = {}
    for finding in list_software(runs):
        if finding.name == "revision" and finding.value.endswith("-dirty"):
            stated.setdefault(finding.value.removesuffix("-dirty")[:12], []).append(finding.subject)
    for revision, who in stated.items():
        yield f"hpcbench had uncommitted changes to revision {revision} when it ran {list_some(who)}."


def _list_revisions(recorded: Any) -> Iterator[tuple[str, str, bool]]:
    git = get_member(recorded, "git")
    for name in git if isinstance(git, dict) else ():
        if revision := get_text(git, name, "revision"):
            yield make_printable(name, 40), make_printable(revision, 80), get_member(git, name, "dirty") is True


def _merge_findings(findings: Iterable[Finding]) -> tuple[Fact, ...]:
    """Merge facts with the same name and value."""
    stated: dict[tuple[str, str], list[Finding]] = {}
    everyone: dict[str, set[str]] = {}
    for finding in findings:
        stated.setdefault((finding.name, finding.value), []).append(finding)
        everyone.setdefault(finding.name, set()).add(finding.subject)
    facts: dict[str, list[Fact]] = {name: [] for name in everyone}
    for (name, value), findings_of_value in stated.items():
        who = tuple(dict.fromkeys(finding.subject for finding in findings_of_value))
        facts[name].append(
            Fact(name, value, findings_of_value[0].source, () if len(who) == len(everyone[name]) else who)
        )
    return tuple(fact for findings_of_value in facts.values() for fact in findings_of_value)
