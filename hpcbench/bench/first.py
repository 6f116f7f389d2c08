"""Output of the first rank for all ranks."""

from contextlib import AbstractContextManager, nullcontext

from hpcbench.bench.progress import Show, progress


def shown(rank: int) -> AbstractContextManager[Show]:
    """Shows the progress of the measurement on the first rank, and nothing on the others."""
    return nullcontext(lambda done, total, name: None) if rank else progress()
