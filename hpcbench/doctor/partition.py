"""A Slurm partition: its limits, those of its quality of service, and whether the user may submit to it."""

import grp
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hpcbench.batch.scripts.duration import Duration
from hpcbench.doctor.cluster import Line, Nodes

_TRES = re.compile(r"\b(node|cpu|gres/gpu)(?::([^=,]+))?=(\d+)(?=,|$)")
_RULES = ("AllowAccounts", "DenyAccounts", "AllowGroups", "AllowQos", "DenyQos")


@dataclass(frozen=True)
class Association:
    """An account that the user may charge, as Slurm's accounting has it."""

    account: str
    partition: str
    """The only partition where it holds; empty for all."""
    qos: tuple[str, ...]
    """Qualities of service that it may use."""


def read_partition(
    words: Mapping[str, str],
    shapes: Mapping[str, Sequence[Nodes]],
    qos: Mapping[str, Mapping[str, str]],
    associations: Sequence[Association],
) -> Line:
    """Return a partition with the limits that hold for a job of this user on its usual kind of node.

    Parameters
    ----------
    words
        Fields of ``scontrol show partition``.
    shapes
        Kinds of nodes by the name of the partition.
    qos
        Limits by the name of the quality of service.
    associations
        Those of the user; empty where accounting does not tell.
    """
    name = words["PartitionName"]
    notes = [f"{key}={words[key]}" for key in _RULES if words.get(key, "ALL") not in ("ALL", "(null)", "")]
    limits = dict(_limits(words, qos, associations, notes))
    kind = Line(name, "", shapes.get(name, ())).kind()
    return Line(
        name,
        f"scontrol show partition {name}{' and sacctmgr show qos' if limits else ''}",
        shapes.get(name, ()),
        default=words.get("Default") == "YES",
        open=words.get("State", "UP") == "UP",
        min_nodes=number if (number := _number(words.get("MinNodes"))) and number > 1 else None,
        max_nodes=_max_nodes(words, limits, kind, shapes.get(name, ()), notes),
        max_walltime=_max_walltime(words, limits, notes),
        max_submitted=_number(limits.get("MaxSubmitPU")),
        notes=notes,
        barred=_barred(words, associations),
    )


def _limits(
    words: Mapping[str, str],
    qos: Mapping[str, Mapping[str, str]],
    associations: Sequence[Association],
    notes: list[str],
) -> Iterator[tuple[str, str]]:
    """The limits of the job's quality of service, where it can only be one, and then those of the partition's."""
    partition_qos = words.get("QoS", "")
    usable = {name for association in associations for name in association.qos}
    job_qos = usable.pop() if len(usable) == 1 else ""
    for name, label in ((job_qos, "yours is"), (partition_qos, "its")):  # the partition's wins where both have one
        limits = qos.get(name, {})
        if limits:
            text = ", ".join(f"{key} {value}" for key, value in limits.items())
            notes.append(f"{label} quality of service {name}: {text}")
        yield from limits.items()


def _max_walltime(words: Mapping[str, str], limits: Mapping[str, str], notes: list[str]) -> str | None:
    times = []
    for text in (words.get("MaxTime", "infinite"), limits.get("MaxWall", "infinite")):
        try:
            times.append(Duration.of_slurm(text))
        except ValueError as error:
            notes.append(str(error))
    shortest = min((time for time in times if time is not None), default=None)
    return str(shortest) if shortest else None


def _max_nodes(
    words: Mapping[str, str],
    limits: Mapping[str, str],
    kind: Nodes | None,
    nodes: Sequence[Nodes],
    notes: list[str],
) -> int | None:
    """The most nodes of a job on nodes of this kind; a job of more waits for ever, though Slurm takes it."""
    bounds = [_number(words.get("MaxNodes")), kind.count if kind else _number(words.get("TotalNodes"))]
    for key in ("MaxTRES", "MaxTRESPU"):
        bounds += [_nodes_of(match[1], match[2], match[3], kind) for match in _TRES.finditer(limits.get(key, ""))]
    others = [str(other) for other in nodes if kind and other.shape != kind.shape]
    if kind and others:
        notes.append(f"other nodes are in it, too: {'; '.join(others)}. Its limit counts {kind}")
    least = min((bound for bound in bounds if bound is not None), default=None)
    if least == 0:
        notes.append("its quality of service allows less than a whole node")
    return least or None


def _nodes_of(resource: str, model: str | None, number: str, kind: Nodes | None) -> int | None:
    """The whole nodes that a limit of a resource amounts to; None where that is unknown."""
    if resource == "node":
        return int(number)
    if kind is None or (model and model != kind.gpu):
        return None
    each = kind.gpus if resource == "gres/gpu" else (kind.cores or 0) * (kind.threads or 1)
    return int(number) // each if each else None


def _barred(words: Mapping[str, str], associations: Sequence[Association]) -> str:
    """Why the user may not submit to a partition, as far as its rules and the user's accounts tell."""
    name = words["PartitionName"]
    usable = [association for association in associations if association.partition in ("", name)]
    if associations and not usable:
        return f"your associations are for {_join({association.partition for association in associations})}"
    accounts = {association.account for association in usable}
    qos = {name for association in usable for name in association.qos}
    for rule, own, what in (
        ("Accounts", accounts, "your accounts are"),
        ("Qos", qos, "your qualities of service are"),
        ("Groups", _groups(), "your groups are"),
    ):
        allowed, denied = (_names(words.get(f"{verb}{rule}", "ALL")) for verb in ("Allow", "Deny"))
        if own and allowed and not allowed & own:
            return f"Allow{rule}={words[f'Allow{rule}']}, and {what} {_join(own)}"
        if own and own <= denied:
            return f"Deny{rule}={words[f'Deny{rule}']}, and {what} {_join(own)}"
    for rule, meaning in (("RootOnly", "only root may submit to it"), ("ReqResv", "it needs a reservation")):
        if words.get(rule) == "YES":
            return f"{rule}=YES: {meaning}"
    return ""


def _names(text: str) -> set[str]:
    return set() if text in ("ALL", "(null)", "NONE", "N/A") else set(filter(None, text.split(",")))


def _groups() -> set[str]:
    names = set()
    for number in {*os.getgroups(), os.getgid()}:
        with suppress(KeyError):
            names.add(grp.getgrgid(number).gr_name)
    return names


def _join(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and int(text) > 0 else None
