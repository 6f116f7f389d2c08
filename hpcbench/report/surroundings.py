"""What runs, nodes and jobs say of the surroundings that they ran in, and in which of it they differ."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.collect.lines import printable, text
from hpcbench.collect.submission import RunResult

_LONGEST = 1 << 16
_OF_A_RANK = (
    *("rank", "local_rank", "host", "pid", "cores", "core_ranges", "numa", "threads", "visible", "nics", "environment"),
    *("gpu.number", "gpu.uuid", "gpu.pci", "gpu.visible", "gpu.peers"),
)
"""Of what ranks say of themselves, all that is no property of their node."""


@dataclass(frozen=True)
class Finding:
    """One thing that one place says."""

    name: str
    value: str
    who: str
    """Run, node or job that it is said of."""
    source: str
    """File, or ``file:line``."""


def software(runs: Iterable[RunResult]) -> Iterator[Finding]:
    """Versions and settings that the runs' worker found: all of the environment event but the ranks."""
    for run in runs:
        if run.log is None:
            continue
        if (start := run.log.event("start")) and (version := text(start.data, "version")):
            yield Finding("hpcbench", printable(version, 80), run.id, run.log.where(start.line))
        if event := run.log.event("environment"):
            where = run.log.where(event.line)
            for name, value in _flat(event.data):
                if name != "event" and name.partition(".")[0] != "world":
                    yield Finding(name, value, run.id, where)


def nodes(runs: Iterable[RunResult]) -> Iterator[Finding]:
    """What the ranks say of their nodes: cores, GPUs and what belongs to these; each thing once a node."""
    told: set[tuple[str, str, str]] = set()
    for _, where, rank in _ranks(runs):
        host = printable(text(rank, "host") or "unknown", 80)
        for name, value in _flat({key: value for key, value in rank.items() if key not in _OF_A_RANK}):
            if name in _OF_A_RANK:
                continue
            # the number of the device is the rank's own, its name is the node's
            value = re.sub(r"^(\w+):[0-9]+", r"\1", value) if name == "device" else value
            if (host, name, value) not in told:
                told.add((host, name, value))
                yield Finding(name, value, host, where)


def binding(runs: Iterable[RunResult]) -> Iterator[Finding]:
    """Where the launcher really put the ranks, by their number on the node."""
    told: set[tuple[str, str, str]] = set()
    for run, where, rank in _ranks(runs):
        name = printable(f"local rank {rank.get('local_rank', 'unknown')}", 40)
        numa = rank.get("numa")
        parts = [f"cores {rank.get('core_ranges', 'unknown')}"]
        parts += [f"NUMA {','.join(str(node) for node in numa)}"] if isinstance(numa, list) else []
        parts += [str(rank["device"])] if rank.get("device") else []
        for key in ("visible", "nics"):
            found = rank.get(key)
            parts += [f"{variable}={value}" for variable, value in found.items()] if isinstance(found, dict) else []
        value = printable("; ".join(parts))
        if (run.id, name, value) not in told:
            told.add((run.id, name, value))
            yield Finding(name, value, run.id, where)


def jobs(root: Path, names: Iterable[str]) -> Iterator[Finding]:
    """What the job scripts kept of the machine that they began on."""
    for job in names:
        directory = root / "jobs" / job / "provenance"
        for name, file, pattern in _KEPT:
            path = directory / file
            for number, line in enumerate(_head(path), 1):
                if matched := pattern.fullmatch(line):
                    yield Finding(name, printable(matched[1]), job, f"{path}:{number}")


_KEPT = (
    ("kernel", "system.txt", re.compile(r"\S+ \S+ (\S+) .*")),
    ("processor", "cpu.txt", re.compile(r"Model name:\s*(\S.*)")),
    ("driver", "nvidia-smi.txt", re.compile(r"Driver Version\s*: (\S.*)")),
    ("GPU", "nvidia-smi.txt", re.compile(r"\s*Product Name\s*: (\S.*)")),
    ("modules", "environment.txt", re.compile(r"LOADEDMODULES=(\S.*)")),
)


def differing(kind: str, findings: Iterable[Finding]) -> list[str]:
    """A sentence for each name of which not all say the same.

    Parameters
    ----------
    kind
        What says it: ``runs``, ``nodes``.
    findings
        Who says nothing of a name does not differ in it.
    """
    said: dict[str, dict[str, dict[str, None]]] = {}
    for one in findings:
        said.setdefault(one.name, {}).setdefault(one.who, {})[one.value] = None
    sentences = []
    for name, values in said.items():
        groups: dict[frozenset[str], list[str]] = {}
        for who, own in values.items():
            groups.setdefault(frozenset(own), []).append(who)
        if len(groups) > 1:
            shown = [f"{' and '.join(list(values[group[0]])[:3])} ({some(group)})" for group in groups.values()]
            sentences.append(f"The {kind} differ in {name}: {', '.join(shown[:4])}{', ...' if len(shown) > 4 else ''}.")
    return sentences


def some(names: list[str]) -> str:
    """The first three, and how many more."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(printable(name, 60) for name in names[:3]) + more


def _ranks(runs: Iterable[RunResult]) -> Iterator[tuple[RunResult, str, dict[str, Any]]]:
    for run in runs:
        event = run.log.event("environment") if run.log else None
        world = event.data.get("world") if event else None
        if run.log and event and isinstance(world, list):
            where = run.log.where(event.line)
            yield from ((run, where, rank) for rank in world if isinstance(rank, dict))


def _flat(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """What nested objects hold, by their keys joined with points; what is null says nothing."""
    for key, value in data.items():
        name = prefix + printable(key, 60)
        if isinstance(value, dict):
            if len(prefix) < 200:
                yield from _flat(value, f"{name}.")
        elif value is not None:
            yield name, printable(value if isinstance(value, str) else json.dumps(value))


def _head(path: Path) -> list[str]:
    """The first lines of a file; none where it is not there, or not ours to read."""
    try:
        with path.open("rb") as stream:
            return stream.read(_LONGEST).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
