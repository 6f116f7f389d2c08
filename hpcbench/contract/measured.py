"""Which steps of a run count for its speed: not the first ones, which fill caches and buffers.

The worker counts traffic over them, the report takes the throughput from them.
"""


def first_measured(warmup: int, steps: int, resumed_from: int = 0) -> int:
    """Number (from 1) of the first step that counts.

    Parameters
    ----------
    warmup
        Steps that do not count.
    steps
        Of the whole run.
    resumed_from
        Step of the checkpoint that the run went on from. Its caches were cold again: as many steps are left out as at
        first, but at most half of those that remained.
    """
    if not resumed_from:
        return warmup + 1
    return resumed_from + min(warmup, (steps - resumed_from) // 2) + 1
