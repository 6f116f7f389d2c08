"""The counted steps of a run. The first steps fill caches and buffers and do not count.

The worker sums the traffic of the counted steps, and the report computes the throughput from them.
"""


def find_first_counted(warmup: int, steps: int, resumed_from: int = 0) -> int:
    """Return the number of the first counted step, from 1.

    Parameters
    ----------
    warmup
        Number of first steps that do not count.
    steps
        Number of steps of the run.
    resumed_from
        Step of the checkpoint from which the run continued. Caches are cold again, so the same number of steps is
        left out, but at most half of the remaining steps.
    """
    if not resumed_from:
        return warmup + 1
    return resumed_from + min(warmup, (steps - resumed_from) // 2) + 1
