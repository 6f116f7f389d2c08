"""GPU checks before the first timed step.

A GPU run never falls back to the CPU.
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
    """Check that the messages of the run can be encoded on the GPU of this rank.

    Raises
    ------
    UserError
        CuPy is missing or cannot use the GPU, or the scheme requires an operation that is supported only on a CPU.
    """
    if run.device == "cpu":
        return
    try:
        cuda()
    except (ImportError, RuntimeError) as error:
        raise UserError(f"device {run.device}: {error} (or use a site with device cpu)") from None
    refused = refusal(run)
    if refused:
        raise UserError(f"device {run.device}: {refused}")


def refusal(run: Run) -> str | None:
    """Name the unsupported part of the scheme and an alternative, or return None if the scheme is supported."""
    scheme = run.scheme
    refused = rules.find_gpu_obstacle(scheme)
    if refused:
        return f"scheme {scheme.name}: {refused[1]}"
    for name in dict.fromkeys(rule.codec for rule in scheme.all_rules):
        if not isinstance(get_codec(name), (Compiled, Identity)):
            remedy = "use another codec, or a site with device cpu"
            return f"scheme {scheme.name}: codec {name} has no kernels for a GPU: {remedy}"
    return None


def awareness(comm: MPI.Comm, run: Run) -> Awareness | None:
    """Return whether the MPI library accepts device pointers, or None on a CPU (a collective call)."""
    return None if run.device == "cpu" else gpu_aware(comm, run.gpu_aware_mpi)
