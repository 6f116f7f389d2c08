"""All checks of the doctor, in output order."""

import shutil
from pathlib import Path

from hpcbench.batch.schedulers.attempt import attempt
from hpcbench.batch.sites.load_site import load_site
from hpcbench.batch.sites.site import Site
from hpcbench.doctor.check import Check, report_ok, report_unknown
from hpcbench.doctor.container import check_container
from hpcbench.doctor.draft_site import survey
from hpcbench.doctor.gpus import check_gpus
from hpcbench.doctor.match_site import check_match
from hpcbench.doctor.nccl import check_nccl
from hpcbench.doctor.place import check_place
from hpcbench.doctor.ranks import check_interpreter, check_launchers, check_world
from hpcbench.doctor.scheduler import check_schedulers, sightings
from hpcbench.doctor.shell import check_shell, check_submitit


def examine(name: str | None, *, run: bool = False) -> list[Check]:
    """Run all checks.

    Parameters
    ----------
    name
        Name or file of the site whose requirements are checked. By default, only this machine is checked.
    run
        Whether to start two ranks with the site's launcher even on a cluster.
    """
    given = load_site(name)[0] if name else None
    site: Site = given or load_site("local")[0]
    seen = sightings()
    cluster = survey(seen)
    on_gpus_here = site.device == "cuda" and site.scheduler.kind == "local"
    return [
        *check_schedulers(seen, site.scheduler.kind if given else cluster.kind),
        *check_match(cluster, given),
        *check_launchers(site),
        *check_interpreter(site, run=run),
        *check_world(site, run=run, alone=given is not None or cluster.kind == "local"),
        *check_container(site, run=run),
        check_gpus(on_gpus_here),
        *check_nccl(site, run=run, alone=given is not None or cluster.kind == "local"),
        *_ucx(),
        *check_submitit(),
        check_shell(),
        *check_place(Path(site.work) if site.work else Path.cwd()),
    ]


def _ucx() -> list[Check]:
    """Check whether UCX, the network layer of many MPI libraries, supports GPUs."""
    if not shutil.which("ucx_info"):
        return []
    answer = attempt(["ucx_info", "-v"])
    if answer.problem:
        return [report_unknown("UCX", answer.problem)]
    first = answer.out.strip().splitlines()[0].lstrip("# ") if answer.out.strip() else "of unknown version"
    gpus = [word for word in ("cuda", "rocm") if f"--with-{word}" in answer.out]
    built = f"with {' and '.join(gpus)}" if gpus else "without GPUs"
    return [report_ok("UCX", f"{first}, built {built}")]
