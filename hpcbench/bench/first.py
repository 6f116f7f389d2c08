"""Output of the first rank for all ranks."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console

from hpcbench.bench.progress import Show, progress
from hpcbench.console import columns


def shown(rank: int) -> AbstractContextManager[Show]:
    """Shows the progress of the measurement on the first rank, and nothing on the others."""
    return nullcontext(lambda done, total, name: None) if rank else progress()


def console() -> Console:
    """The console for tables."""
    return Console(width=columns(), highlight=False)


def say(left_out: Sequence[str]) -> None:
    """Print why something was not measured, one line each."""
    for reason in left_out:
        print(f"Not measured: {reason}")
