"""Every fault of a site file at once: what the schema finds, and what the rules find in what is left of it."""

import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hpcbench.batch.scripts.render import template_environment
from hpcbench.batch.sites.load_site import template_directory
from hpcbench.batch.sites.site import Site
from hpcbench.batch.sites.site_rules import Fault, faults
from hpcbench.contract.problems import FieldPath, list_faults
from hpcbench.errors import UserError
from hpcbench.study.yaml12 import read

_REQUIRED: dict[FieldPath, Any] = {
    ("site",): "unnamed",
    ("scheduler",): {"kind": "local"},
    ("scheduler", "kind"): "local",
    ("launcher",): {"kind": "mpich"},
    ("launcher", "kind"): "mpich",
    ("network", "description"): "?",
    ("checked",): "never",
}
"""Stands for what a file must say and does not, or says wrongly, so that the rest can be weighed."""


def check_files(paths: Iterable[Path]) -> list[str]:
    """One line for each fault of the files, in the order of their lines."""
    return [line for path in paths for line in check_file(path)]


def check_file(path: Path) -> list[str]:
    """One line for each fault of a site file: its place, the field, the remedy."""
    try:
        document = read(path)
    except UserError as error:
        return [str(error)]
    data, said = copy.deepcopy(document.data), dict[FieldPath, str]()
    while True:
        try:
            site = Site.model_validate(data)
        except ValidationError as error:
            found = list_faults(error, Site)
            said = {**found, **said}
            if not _leave_out(data, found):
                site = None
                break
        else:
            break
    told = [Fault(*fault) for fault in said.items()]
    if site is not None and site.templates is not None:
        try:
            template_environment(template_directory(site.templates, path))
        except (ValueError, UserError) as error:
            told.append(Fault(("templates",), str(error)))
    if site is not None:
        told += [*faults(site, broken=list(said)), *_left_out(site, document.data)]
    order = {origin: number for number, origin in enumerate(dict.fromkeys(document.origins.values()))}
    told.sort(key=lambda fault: order.get(document.where(fault.path), -1))
    return [fault.line(document) for fault in told]


def _left_out(site: Site, data: dict[str, Any]) -> Iterator[Fault]:
    """What jobs run without until somebody needs it."""
    scheduler = data.get("scheduler")
    if site.scheduler.kind == "lsf" and isinstance(scheduler, dict) and "account_option" not in scheduler:
        yield Fault(("scheduler",), "account_option is missing: LLNL's LSF has -G, OLCF's and most others have -P")


def _leave_out(data: dict[str, Any], paths: Iterable[FieldPath]) -> bool:
    """Take what is wrong out of the data, or put what must be there; whether anything changed."""
    changed = False
    # Of a list's items the last goes first, so that the numbers of the others hold.
    for path in sorted(paths, key=lambda path: (len(path), [str(part).zfill(9) for part in path]), reverse=True):
        parent: Any = data
        for part in path[:-1]:
            parent = parent[part] if _has(parent, part) else None
        last = path[-1] if path else None
        if isinstance(parent, dict) and path in _REQUIRED and parent.get(last) != _REQUIRED[path]:
            parent[last] = copy.deepcopy(_REQUIRED[path])
        elif _has(parent, last):
            del parent[last]
        elif path[:-1] and isinstance(parent, dict):
            _leave_out(data, [path[:-1]])  # something required is missing from a part that is one of many
        else:
            continue
        changed = True
    return changed


def _has(parent: Any, part: str | int | None) -> bool:
    if isinstance(parent, dict):
        return part in parent
    return isinstance(parent, list) and isinstance(part, int) and part < len(parent)
