"""Detection of the scheduler that responds.

A client program on PATH is not sufficient, because wrappers use the same names.
"""

from hpcbench.batch.schedulers.cluster import Sighting
from hpcbench.batch.schedulers.flux_cluster import find_flux
from hpcbench.batch.schedulers.lsf_cluster import find_lsf
from hpcbench.batch.schedulers.slurm_cluster import find_slurm
from hpcbench.doctor.check import Check, Health

_HEALTH = {True: Health.OK, False: Health.MISSING, None: Health.UNKNOWN}


def sightings() -> list[Sighting]:
    """Query every kind of scheduler."""
    return [find_slurm(), find_lsf(), find_flux()]


def answering(seen: list[Sighting]) -> Sighting | None:
    """Return the scheduler that responds. Flux comes first, because Slurm or LSF may have started the Flux instance."""
    working = {sighting.kind: sighting for sighting in seen if sighting.answers}
    return next((working[kind] for kind in ("flux", "lsf", "slurm") if kind in working), None)


def check_schedulers(seen: list[Sighting], wanted: str) -> list[Check]:
    """Check the site's kind of scheduler, and each other kind that is at least partly installed."""
    remedies = {
        "slurm": "run this on a login node of the cluster; SLURM_CONF may be missing",
        "lsf": "run this on a login node; its profile.lsf may not have been sourced",
        "flux": "run this on a login node, or inside `flux start`; FLUX_URI names the instance",
    }
    checks = []
    if wanted == "local":
        checks.append(Check("scheduler", Health.OK, "local: jobs run here, one after another", needed=True))
    for sighting in seen:
        if sighting.kind == wanted or sighting.answers is not False or sighting.client:
            remedy = "" if sighting.answers else remedies[sighting.kind]
            health, needed = _HEALTH[sighting.answers], sighting.kind == wanted
            checks.append(Check(f"scheduler {sighting.kind}", health, sighting.fact, remedy, needed))
    if not any(sighting.answers for sighting in seen) and wanted == "local":
        checks.append(Check("other schedulers", Health.OK, "no scheduler answers (tried Slurm, LSF and Flux)"))
    return checks
