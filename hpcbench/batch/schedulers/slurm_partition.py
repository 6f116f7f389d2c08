"""Slurm partitions: limits, quality of service, and permission to submit."""

import grp
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from hpcbench.batch.schedulers.accounts import Association
from hpcbench.batch.schedulers.cluster import Nodes, QueueFacts
from hpcbench.batch.scripts.duration import Duration

_TRES = re.compile(r"\b(node|cpu|gres/gpu)(?::([^=,]+))?=(\d+)(?=,|$)")
_RULES = ("AllowAccounts", "DenyAccounts", "AllowGroups", "AllowQos", "DenyQos")


def read_partition(
    fields: Mapping[str, str],
    shapes: Mapping[str, Sequence[Nodes]],
    qos: Mapping[str, Mapping[str, str]],
    associations: Sequence[Association],
) -> QueueFacts:
    """Return a partition with the limits for this user's jobs on its most frequent kind of node.

    Parameters
    ----------
    fields
        Fields of ``scontrol show partition``.
    shapes
        Kinds of nodes, keyed by partition name.
    qos
        Limits, keyed by name of the quality of service.
    associations
        Associations of the user. The list is empty if accounting does not respond.
    """
    name = fields["PartitionName"]
    notes = [f"{key}={fields[key]}" for key in _RULES if fields.get(key, "ALL") not in ("ALL", "(null)", "")]
    limits = dict(_limits(fields, qos, associations, notes))
    kind = QueueFacts(name, "", shapes.get(name, ())).kind()
    return QueueFacts(
        name,
        f"scontrol show partition {name}{' and sacctmgr show qos' if limits else ''}",
        shapes.get(name, ()),
        default=fields.get("Default") == "YES",
        open=fields.get("State", "UP") == "UP",
        min_nodes=number if (number := parse_number(fields.get("MinNodes"))) and number > 1 else None,
        max_nodes=_max_nodes(fields, limits, kind, shapes.get(name, ()), notes),
        max_walltime=_max_walltime(fields, limits, notes),
        max_submitted=parse_number(limits.get("MaxSubmitPU")),
        sharing=fields.get("OverSubscribe", "?"),
        notes=notes,
        barred=_barred(fields, associations),
    )


def _limits(
    fields: Mapping[str, str],
    qos: Mapping[str, Mapping[str, str]],
    associations: Sequence[Association],
    notes: list[str],
) -> Iterator[tuple[str, str]]:
    """Yield the limits of the job's quality of service, if only one is possible, then the limits of the partition."""
    partition_qos = fields.get("QoS", "")
    usable = {name for association in associations for name in association.qos}
    job_qos = usable.pop() if len(usable) == 1 else ""
    for name, label in ((job_qos, "yours is"), (partition_qos, "its")):  # the partition's limit takes precedence
        limits = qos.get(name, {})
        if limits:
            text = ", ".join(f"{key} {value}" for key, value in limits.items())
            notes.append(f"{label} quality of service {name}: {text}")
        yield from limits.items()


def _max_walltime(fields: Mapping[str, str], limits: Mapping[str, str], notes: list[str]) -> str | None:
    times = []
    for text in (fields.get("MaxTime", "infinite"), limits.get("MaxWall", "infinite")):
        try:
            times.append(Duration.of_slurm(text))
        except ValueError as error:
            notes.append(str(error))
    shortest = min((time for time in times if time is not None), default=None)
    return str(shortest) if shortest else None


def _max_nodes(
    fields: Mapping[str, str],
    limits: Mapping[str, str],
    kind: Nodes | None,
    nodes: Sequence[Nodes],
    notes: list[str],
) -> int | None:
    """Return the maximum nodes per job on this kind of node. Slurm accepts larger jobs but never starts them."""
    bounds = [parse_number(fields.get("MaxNodes")), kind.count if kind else parse_number(fields.get("TotalNodes"))]
    for key in ("MaxTRES", "MaxTRESPU"):
        bounds += [_nodes_of(match[1], match[2], match[3], kind) for match in _TRES.finditer(limits.get(key, ""))]
    others = [str(other) for other in nodes if kind and other.shape != kind.shape]
    if kind and others:
        notes.append(f"it also contains {'; '.join(others)}; its limit counts only {kind}")
    least = min((bound for bound in bounds if bound is not None), default=None)
    if least == 0:
        notes.append("its quality of service allows less than a whole node")
    return least or None


def _nodes_of(resource: str, model: str | None, number: str, kind: Nodes | None) -> int | None:
    """Convert a resource limit to a whole number of nodes. Return None if the limit cannot be converted."""
    if resource == "node":
        return int(number)
    if kind is None or (model and model != kind.gpu):
        return None
    each = kind.gpus if resource == "gres/gpu" else (kind.cores or 0) * (kind.threads or 1)
    return int(number) // each if each else None


def _barred(fields: Mapping[str, str], associations: Sequence[Association]) -> str:
    """Return why the partition's rules refuse the user's accounts, or an empty string if one is accepted."""
    name = fields["PartitionName"]
    usable = [association for association in associations if association.partition in ("", name)]
    if associations and not usable:
        return f"your associations are for {_join({association.partition for association in associations})}"
    accounts = {association.account for association in usable}
    qos = {name for association in usable for name in association.qos}
    for rule, names, what in (
        ("Accounts", accounts, "your accounts are"),
        ("Qos", qos, "your qualities of service are"),
        ("Groups", _groups(), "your groups are"),
    ):
        allowed, denied = (_names(fields.get(f"{verb}{rule}", "ALL")) for verb in ("Allow", "Deny"))
        if names and allowed and not allowed & names:
            return f"Allow{rule}={fields[f'Allow{rule}']}, and {what} {_join(names)}"
        if names and names <= denied:
            return f"Deny{rule}={fields[f'Deny{rule}']}, and {what} {_join(names)}"
    for rule, meaning in (("RootOnly", "only root may submit to it"), ("ReqResv", "it needs a reservation")):
        if fields.get(rule) == "YES":
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


def parse_number(text: str | None) -> int | None:
    """Parse a positive integer. Return None for any other text, such as ``UNLIMITED``."""
    return int(text) if text and text.isdigit() and int(text) > 0 else None
