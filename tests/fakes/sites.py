"""Options for a fake, from a site file."""

from typing import Any

from hpcbench.batch.scripts.duration import Duration
from hpcbench.batch.sites.limits import longest
from hpcbench.batch.sites.load_site import load_site
from hpcbench.batch.sites.site import Queue, Site
from hpcbench.errors import UserError


def read_options(name: str, system: str) -> dict[str, Any]:
    """Return options of `FakeLSF` or `FakeFlux` for the site with this name or file.

    Raises
    ------
    UserError
        The site does not exist, its file is invalid, or it uses a different scheduler.
    """
    site, _ = load_site(name)
    kind = site.scheduler.kind
    if kind != system:
        raise UserError(f"site {site.site}: its scheduler is {kind}: give {kind}, not {system}")
    settings: dict[str, Any] = {
        "cores": site.node.usable_cores,
        "gpus": site.node.gpus,
        "account_option": site.scheduler.account_option or "",
        "max_submitted": site.scheduler.max_submitted or 0,
    }
    if site.queues:
        settings["queues"] = {queue: _read_limits(limits) for queue, limits in site.queues.items()}
    return {**settings, **(_read_lsf_options(site) if system == "lsf" else {})}


def _read_lsf_options(site: Site) -> dict[str, Any]:
    scheduler = site.scheduler
    settings: dict[str, Any] = {"flavour": "csm" if scheduler.allocation == "nodes" else "lsf"}
    if scheduler.max_array is not None:
        settings["max_array"] = scheduler.max_array
    return {**settings, "parse_script": scheduler.hand_in == "file"}


def _read_limits(queue: Queue) -> dict[str, Any]:
    counts = [bin.max_nodes for bin in queue.bins]
    limits = {
        "min_nodes": queue.min_nodes,
        "max_nodes": queue.most_nodes,
        "max_minutes": _parse_minutes(Duration.parse(queue.max_walltime) if queue.max_walltime else None),
        "bins": [(count, _parse_minutes(longest(queue, count))) for count in counts],
        "max_submitted": queue.max_submitted,
    }
    return {name: value for name, value in limits.items() if value}


def _parse_minutes(limit: Duration | None) -> float | None:
    return limit.seconds / 60 if limit else None
