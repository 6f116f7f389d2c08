"""The fake blaunch, which MPI libraries call to start processes on the hosts of a job.

Sources: IBM Spectrum LSF 10.1, Command Reference, blaunch.
"""

import os

from fakes.hosts import run_on
from fakes.lsf.words import VERSION
from fakes.programs import Call, RefusedError, register_program
from fakes.ranks import find_allocation


@register_program("blaunch")
def blaunch(call: Call) -> int:
    """Run a command on a host of the job."""
    if call.argv[:1] == ["-V"]:
        call.warn(VERSION)
        return 0
    arguments = call.argv[1:] if call.argv[:1] == ["-n"] else call.argv
    if arguments[:1] and arguments[0].startswith("-"):
        raise RefusedError(f"blaunch: hpcbench's fake does not support {arguments[0]}: only -n")
    if len(arguments) < 2:
        raise RefusedError("Usage: blaunch [-n] host_name command [argument ...]")
    job = find_allocation(call.store, os.environ.get("LSB_JOBID"), "blaunch: cannot be called outside of an LSF job")
    if arguments[0] not in job.places:
        raise RefusedError(f"{arguments[0]}: the host is not allocated to the job <{job.key}>")
    run_on(arguments)
    return 0
