"""Site file validation that reports all schema errors and rule violations at once."""

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
"""Substitutes for missing or invalid required fields, so that all other fields can be checked."""


def check_file(path: Path) -> list[str]:
    """Return one line for each fault in a site file, with location, field, and remedy."""
    try:
        document = read(path)
    except UserError as error:
        return [str(error)]
    data, problems = copy.deepcopy(document.data), dict[FieldPath, str]()
    while True:
        try:
            site = Site.model_validate(data)
        except ValidationError as error:
            new_problems = list_faults(error, Site)
            problems = {**new_problems, **problems}
            if not _leave_out(data, new_problems):
                site = None
                break
        else:
            break
    site_faults = [Fault(*fault) for fault in problems.items()]
    if site is not None and site.templates is not None:
        try:
            template_environment(template_directory(site.templates, path))
        except (ValueError, UserError) as error:
            site_faults.append(Fault(("templates",), str(error)))
    if site is not None:
        site_faults += [*faults(site, broken=list(problems)), *_find_optional(site, document.data)]
    order = {origin: number for number, origin in enumerate(dict.fromkeys(document.origins.values()))}
    site_faults.sort(key=lambda fault: order.get(document.where(fault.path), -1))
    return [fault.line(document) for fault in site_faults]


def _find_optional(site: Site, data: dict[str, Any]) -> Iterator[Fault]:
    """Yield the faults in fields that are needed only by some jobs."""
    scheduler = data.get("scheduler")
    if site.scheduler.kind == "lsf" and isinstance(scheduler, dict) and "account_option" not in scheduler:
        yield Fault(
            ("scheduler",), "account_option is missing: set it to -G at LLNL, and to -P at OLCF and most other sites"
        )


def _leave_out(data: dict[str, Any], paths: Iterable[FieldPath]) -> bool:
    """Remove invalid fields, or set them to substitutes if required. Return whether anything changed."""
    changed = False
    # Remove list items from last to first, so that remaining indices stay valid.
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
            _leave_out(data, [path[:-1]])  # a required field is missing in an item of a list or mapping
        else:
            continue
        changed = True
    return changed


def _has(parent: Any, part: str | int | None) -> bool:
    if isinstance(parent, dict):
        return part in parent
    return isinstance(parent, list) and isinstance(part, int) and part < len(parent)
