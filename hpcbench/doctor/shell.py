"""What this shell has that would steer a launcher, and whose plugin of submitit is in use."""

import fnmatch
import os
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from hpcbench.doctor.check import Check, found, missing, unknown

_STEER = (
    *("SLURM_*", "SRUN_*", "SBATCH_*", "LSB_*", "LS_*", "JSM_*", "FLUX_*", "PBS_*", "PMI_*", "PMIX_*", "OMPI_*"),
    *("PRTE_*", "HYDRA_*", "HYDI_*", "MPIEXEC_*", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", "CRAY_PMI*", "PALS_*"),
)
_CONFIGURE = ("SLURM_CONF", "SLURM_CLUSTERS", "FLUX_URI")
"""They say where the scheduler is; without them its clients find none."""


def leftovers(names: Iterable[str]) -> list[str]:
    """Variables that an outer job or launcher left."""
    return sorted(n for n in names if n not in _CONFIGURE and any(fnmatch.fnmatchcase(n, p) for p in _STEER))


def check_shell() -> Check:
    """Whether there are any."""
    names = leftovers(os.environ)
    if not names:
        return found("shell", "no variables of an outer job or launcher")
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return found("shell", f"{shown} are set: what is submitted does not see them; are you inside a job?")


def check_submitit() -> list[Check]:
    """Its version, and which class answers to cluster="lsf": with several plugins, the last one wins silently."""
    try:
        checks = [found("submitit", version("submitit"), needed=True)]
    except PackageNotFoundError:
        return [missing("submitit", "is not installed", "pip install hpcbench brings it", needed=True)]
    try:
        owner = import_module("hpcbench.batch.submitit_lsf").owner()
    except (ImportError, AttributeError) as error:
        return [*checks, unknown("submitit lsf", f"who owns it cannot be asked: {error}")]
    ours = str(owner).startswith("hpcbench.")
    remedy = "" if ours else "another package registers lsf with submitit; hpcbench uses its own class all the same"
    return [*checks, found("submitit lsf", f"{owner}{'' if ours else f': {remedy}'}")]
