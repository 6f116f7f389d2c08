"""Progress of a long operation on standard error: a bar on a terminal, and periodic lines in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from hpcbench.console import span

_SAY = 10.0
"""Seconds between log lines."""

Show = Callable[[int, int, str], object]
"""Callback that receives the number of finished repeats, the total number of repeats, and the name of the next item."""


@contextmanager
def progress(
    console: Console | None = None, clock: Callable[[], float] = time.monotonic, unit: str = "turns"
) -> Iterator[Show]:
    """Yield a progress callback, which must be called before each turn.

    Parameters
    ----------
    console
        Console for the progress display. The default is standard error.
    clock
        Monotonic clock in seconds.
    unit
        Plural noun for the counted items.
    """
    console = console or Console(stderr=True, highlight=False)
    if console.is_terminal:
        with _bar(console) as show:
            yield show
    else:
        yield _lines(console, clock, unit)


def rank_progress(rank: int) -> AbstractContextManager[Show]:
    """Show the progress of a measurement on the first rank, and nothing on the others."""
    return nullcontext(lambda done, total, name: None) if rank else progress()


@contextmanager
def _bar(console: Console) -> Iterator[Show]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("preparing", total=None)
        yield lambda done, total, name: bar.update(task, completed=done, total=total, description=name)


def _lines(console: Console, clock: Callable[[], float], unit: str) -> Show:
    begin = last = clock()

    def show(done: int, total: int, name: str) -> None:
        nonlocal last
        if clock() - last >= _SAY and done < total:
            last = clock()
            console.print(Text(f"[{span(last - begin):>5}] {done} of {total} {unit}, next {name}"), soft_wrap=True)

    return show
