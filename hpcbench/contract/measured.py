"""The measured steps of a run. The first steps fill caches and buffers, and are excluded.

The worker sums traffic over these steps, and the report computes throughput from them.
"""


def find_first_counted(warmup: int, steps: int, resumed_from: int = 0) -> int:
    """Return the number of the first measured step (steps start at 1).

    Parameters
    ----------
    resumed_from
        Step of the checkpoint from which the run continued. After a restart, caches are cold again. Therefore the same
        number of steps is excluded, but at most half of the remaining steps.
    """
    if not resumed_from:
        return warmup + 1
    return resumed_from + min(warmup, (steps - resumed_from) // 2) + 1
