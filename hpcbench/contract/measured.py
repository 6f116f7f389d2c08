"""The steps of a run that count for its speed. The first steps fill caches and buffers and do not count.

The worker counts traffic over these steps, and the report takes the throughput from them.
"""


def find_first_counted(warmup: int, steps: int, resumed_from: int = 0) -> int:
    """Return the number of the first step that counts, from 1.

    Parameters
    ----------
    warmup
        Steps that do not count.
    steps
        Steps of the whole run.
    resumed_from
        Step of the checkpoint that the run continued from. Its caches were cold again, so the same number of steps is
        left out, but at most half of the steps that remained.
    """
    if not resumed_from:
        return warmup + 1
    return resumed_from + min(warmup, (steps - resumed_from) // 2) + 1
