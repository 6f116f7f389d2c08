"""Network traffic of a program's counted steps, computed from node samples and the times of step lines."""

import time
from pathlib import Path

from hpcbench.collect.program_log import ProgramReader
from hpcbench.collect.run_log import RunLog
from hpcbench.contract.measured import find_first_counted
from hpcbench.contract.program import ProgramRun
from hpcbench.features.network.events import NetworkBytes
from hpcbench.features.network.window import count_bytes, read_samples
from hpcbench.programs.rank import NETWORK

_WAIT_S = 3.0
"""Maximum time to wait for the last samples, which nodes write after the program has ended."""


def measure_network(
    run: ProgramRun, reader: ProgramReader, log: RunLog, directory: Path, begin: float
) -> NetworkBytes | None:
    """Count the bytes sent over the network between the lines of the last warm-up step and the last step.

    Return None if the log has fewer than two steps after warm-up, or if there are no samples.

    Parameters
    ----------
    reader, log
        Reader of the program's log, and the resulting log.
    directory
        Run directory.
    begin
        Start time of the program in seconds since the epoch.
    """
    times = reader.find_times(log)
    steps = sorted(times)
    if run.program.warmup_steps is None:
        before = steps[0] if steps else 0
    else:
        before = find_first_counted(run.program.warmup_steps, log.planned_steps or 0) - 1
    counted = [step for step in steps if step >= before]
    if len(counted) < 2:
        return None
    first, last = counted[0], counted[-1]
    end = begin + times[last]
    deadline = time.monotonic() + _WAIT_S
    while nodes := read_samples(directory / NETWORK):
        late = [node for node in nodes if node.last_time < end]
        if not late or time.monotonic() > deadline:
            return count_bytes(nodes, begin + times[first], end, (first + 1, last))
        time.sleep(0.05)
    return None
