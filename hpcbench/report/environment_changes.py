"""Software and hardware changes between two submissions, which may explain changes in speed."""

from collections.abc import Iterable, Sequence

from hpcbench.collect.submission import RunResult
from hpcbench.report.provenance import Finding, list_bindings, list_nodes, list_packages, list_software

_SHOWN_PACKAGES = ("torch", "numpy", "mpi4py", "cupy", "nvidia", "triton", "ml_dtypes", "ml-dtypes", "zfpy", "mpich")
"""Name prefixes of packages for computation, encoding or communication, which are listed individually."""
_MOST_VALUES = 3


def list_environment_changes(new: Sequence[RunResult], old: Sequence[RunResult]) -> list[str]:
    """Return the software and hardware changes, such as ``mpi MPICH 5.0.2, was Open MPI 5.0.7``.

    Facts that are missing from one submission are ignored, except missing packages.
    """
    programs = _describe_differing(list_software(new), list_software(old))
    machines = _describe_differing(list_nodes(new), list_nodes(old))
    placed = _describe_differing(list_bindings(new), list_bindings(old))
    return [*programs, *_describe_package_changes(new, old, skipped=programs), *machines, *placed]


def _describe_differing(new: Iterable[Finding], old: Iterable[Finding]) -> list[str]:
    after, before = _collect_values(new), _collect_values(old)
    return [
        f"{name} {_format_values(after[name])}, was {_format_values(before[name])}"
        for name in before
        if name in after and set(after[name]) != set(before[name])
    ]


def _describe_package_changes(
    new: Sequence[RunResult], old: Sequence[RunResult], *, skipped: Sequence[str]
) -> list[str]:
    after, before = _collect_values(list_packages(new)), _collect_values(list_packages(old))
    if not after or not before:
        return []
    names = [name for name in dict.fromkeys((*before, *after)) if after.get(name) != before.get(name)]
    named = {change.partition(" ")[0] for change in skipped}  # torch and numpy are also in the environment
    chosen = [name for name in names if name.lower().startswith(_SHOWN_PACKAGES)]
    changes = [
        f"{name} {_format_values(after.get(name, []))}, was {_format_values(before.get(name, []))}"
        for name in chosen
        if name not in named
    ]
    if more := len(names) - len(chosen):
        changes.append(f"versions of {more} {'other package' if chosen else 'package'}{'s' * (more > 1)}")
    return changes


def _collect_values(findings: Iterable[Finding]) -> dict[str, list[str]]:
    """Return the values of each fact over all runs or nodes, in deterministic order."""
    values: dict[str, set[str]] = {}
    for finding in findings:
        values.setdefault(finding.name, set()).add(finding.value)
    return {name: sorted(distinct) for name, distinct in values.items()}


def _format_values(values: Sequence[str]) -> str:
    if not values:
        return "not installed"
    more = " and more" if len(values) > _MOST_VALUES else ""
    return " and ".join(values[:_MOST_VALUES]) + more
