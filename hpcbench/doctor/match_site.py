"""Comparison of this machine with site files."""

import os
import socket

from hpcbench.batch.sites.load_site import load_site, site_names
from hpcbench.batch.sites.site import Site
from hpcbench.doctor.check import Check, report_missing, report_ok, report_unknown
from hpcbench.doctor.cluster import Cluster


def marks(site: Site, cluster: Cluster) -> dict[str, bool]:
    """Compare a site file with this machine.

    Only properties that are known for both the machine and the site are compared.
    """
    matches = {"scheduler": site.scheduler.kind == cluster.kind}
    if cluster.kind == "local":
        return matches
    names = {word.lower() for word in (cluster.name or "", socket.getfqdn(), os.environ.get("LMOD_SYSTEM_NAME", ""))}
    matches["name"] = any(site.site.lower() in word for word in names if word)
    queues = {line.name for line in cluster.queues if line.name}
    if queues and site.queues:
        matches["queues"] = set(site.queues) <= queues
    kinds = [nodes for line in cluster.queues for nodes in line.nodes]
    if any(nodes.gpus is not None for nodes in kinds):
        matches["GPUs per node"] = any(nodes.gpus == site.node.gpus for nodes in kinds)
    return matches


def check_match(cluster: Cluster, given: Site | None) -> list[Check]:
    """Check how well the given site matches, or which built-in site matches best."""
    if given is not None:
        matches = marks(given, cluster)
        return [_line(given.site, matches, needed=given.scheduler.kind != "local")]
    if cluster.kind == "local":
        return [report_ok("site", "local: no scheduler is running on this machine")]
    sites = {name: marks(load_site(name)[0], cluster) for name in site_names()}
    fitting = {name: matches for name, matches in sites.items() if matches["scheduler"]}
    best = max(fitting, key=lambda name: (fitting[name]["name"], sum(fitting[name].values())), default=None)
    if best and fitting[best]["name"]:
        return [_line(best, fitting[best], needed=False)]
    return [
        report_missing(
            "site",
            f"none of {len(sites)} site files matches this machine",
            "hpcbench doctor --draft-site > mysite.yaml",
        )
    ]


def _line(name: str, matches: dict[str, bool], *, needed: bool) -> Check:
    yes = [what for what, fits in matches.items() if fits]
    no = [what for what, fits in matches.items() if not fits]
    summary = "; not ".join(", ".join(part) for part in (yes or ["none"], no) if part)
    fact = f"{name}: {len(yes)} of {len(matches)} properties match ({summary})"
    if not matches["scheduler"]:
        return report_missing("site", fact, "this is another machine, or its scheduler does not answer", needed=needed)
    if no and not (no == ["name"] and matches.get("queues")):  # user files may have any name
        return report_unknown("site", fact, "see `hpcbench doctor --draft-site` for the values detected here")
    return report_ok("site", fact, needed=needed)
