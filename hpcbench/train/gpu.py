"""Checks of a run on a GPU, before anything is timed.

The CPU never replaces the GPU.
"""

from mpi4py import MPI

from hpcbench.codecs.compiled import Compiled
from hpcbench.codecs.device import cuda
from hpcbench.codecs.identity import Identity
from hpcbench.codecs.registry import get_codec
from hpcbench.comm.gpu_aware import Awareness, gpu_aware
from hpcbench.contract import rules
from hpcbench.contract.run import Run
from hpcbench.errors import UserError


def check(run: Run) -> None:
    """Check that the run's messages can be made on the GPU of this rank.

    Raises
    ------
    UserError
        CuPy is missing, it cannot use the GPU, or the scheme needs something that only the CPU can do.
    """
    if run.device == "cpu":
        return
    try:
        cuda()
    except (ImportError, RuntimeError) as error:
        raise UserError(f"device {run.device}: {error}, or use a site with device cpu") from None
    refused = refusal(run)
    if refused:
        raise UserError(f"device {run.device}: {refused}")


def refusal(run: Run) -> str | None:
    """Return the part of the scheme that is not supported on a GPU, and what to use instead."""
    scheme = run.scheme
    refused = rules.find_gpu_obstacle(scheme)
    if refused:
        return f"scheme {scheme.name}: {refused[1]}"
    for name in dict.fromkeys(rule.codec for rule in scheme.all_rules):
        if not isinstance(get_codec(name), (Compiled, Identity)):
            return f"scheme {scheme.name}: codec {name} has no kernels for a GPU: use another, or device cpu"
    return None


def awareness(comm: MPI.Comm, run: Run) -> Awareness | None:
    """Return whether the MPI library accepts device pointers (a collective call); None on a CPU."""
    return None if run.device == "cpu" else gpu_aware(comm, run.gpu_aware_mpi)
