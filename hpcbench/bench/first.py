"""What the first rank alone shows, for all of them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console

from hpcbench.bench.progress import Show, progress
from hpcbench.console import columns


def shown(rank: int) -> AbstractContextManager[Show]:
    """How far the measurement has come, on the first rank; nothing on the others."""
    return nullcontext(lambda done, total, name: None) if rank else progress()


def console() -> Console:
    """For tables."""
    return Console(width=columns(), highlight=False)


def say(left_out: Sequence[str]) -> None:
    """Why something was not measured, a line each."""
    for reason in left_out:
        print(f"Not measured: {reason}")
