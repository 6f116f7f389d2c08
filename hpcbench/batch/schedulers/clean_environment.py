"""Environment for scheduler commands, which submitted jobs may inherit.

A shell inside a job contains that job's variables, which schedulers and launchers read as options. A single inherited
binding variable can silently pin all ranks to a few cores.
"""

import os
from collections.abc import Collection, Mapping

PREFIXES = (
    *("SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SACCT_", "SCANCEL_"),
    *("LSB_", "LSF_", "LS_", "JSM_"),
    *("PMIX_", "PMI_", "OMPI_", "PRTE_", "HYDRA_", "HYDI_", "MPIEXEC_", "PALS_", "CRAY_PMI_"),
    *("FLUX_", "PBS_"),
)
"""Prefixes of variables that a scheduler or launcher sets in its jobs or reads as options."""

_SETTINGS = ("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_")
"""Prefixes of user settings for Open MPI and Spectrum MPI."""

NAMES = ("MPI_LOCALNRANKS", "MPI_LOCALRANKID")

CONFIGURATION = frozenset(
    {
        *("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"),
        *("LSF_ENVDIR", "LSF_SERVERDIR", "LSF_BINDIR", "LSF_LIBDIR"),
        "LS_COLORS",  # not an LSF variable
    }
)
"""Variables that locate the scheduler and identify the user. Without these variables, scheduler commands fail."""


def clean_environment(environment: Mapping[str, str] | None = None, keep: Collection[str] = ()) -> dict[str, str]:
    """Return a copy of the environment without the variables of an enclosing job.

    Parameters
    ----------
    environment
        Environment variables. The default is the environment of this process.
    keep
        Names of additional variables to keep, such as ``FLUX_URI``, which selects the Flux instance.
    """
    source = os.environ if environment is None else environment
    names = CONFIGURATION.union(keep)
    return {name: value for name, value in source.items() if name in names or not _foreign(name)}


def settings_left_out(environment: Mapping[str, str], site: Collection[str]) -> list[str]:
    """Return the names of MPI settings in this shell that are not passed on to jobs.

    If this process is a rank that a launcher has started, the result is empty, because the settings may belong to the
    launcher.

    Parameters
    ----------
    environment
        Environment variables of this process.
    site
        Names of variables set by the site.
    """
    if {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"} & environment.keys():
        return []
    return sorted(name for name in environment if name.startswith(_SETTINGS) and name not in site)


def _foreign(name: str) -> bool:
    return name.startswith(PREFIXES) or name in NAMES


def plain_environment(keep: Collection[str] = ()) -> dict[str, str]:
    """Return an environment for calls whose output is parsed: English messages, and times in UTC."""
    return {**clean_environment(keep=keep), "LC_ALL": "C", "TZ": "UTC"}
