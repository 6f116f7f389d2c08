"""The table that a person reads, at the width of their terminal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from hpcbench.collect.lines import integer, member, number, printable, text
from hpcbench.collect.submission import RunResult
from hpcbench.report.answer import answer, trouble
from hpcbench.report.compare import GOOD, NOT_FASTER, NOT_SHOWN, WORSE, Cell, Row
from hpcbench.report.measures import Measures, Unknown, all_notes, is_gpu, is_uncompressed
from hpcbench.report.statistics import Interval

WIDE = 132
"""Columns that the whole table needs; below, speed and loss stand under each other."""
_WIDE_RUNS = 120
_LONGEST_NAME = 24
_UNITS = ((1e15, "PFLOPS"), (1e12, "TFLOPS"), (1e9, "GFLOPS"), (1e6, "MFLOPS"), (1.0, "FLOPS"))


@dataclass(frozen=True)
class Unit:
    """How FLOP/s per rank are written."""

    scale: float
    name: str

    def show(self, value: float | None) -> str:
        """A figure without its unit."""
        return significant(None if value is None else value / self.scale)


def flops_unit(values: Sequence[float | None], gpu: bool) -> Unit:
    """The unit in which the largest of `values` (FLOP/s per rank) has one to three digits before the point."""
    known = [value for value in values if value and math.isfinite(value)]
    largest = max(known, default=1e12 if gpu else 1e9)
    scale, name = next((unit for unit in _UNITS if largest >= unit[0]), _UNITS[-1])
    return Unit(scale, f"{name}/{'GPU' if gpu else 'rank'}")


def title(cell: Cell) -> tuple[str, str]:
    """What was run where, and what it is compared with."""
    run = _example(cell)
    parts = [_model(run), _layout(run), *(f"{key} {value}" for key, value in run.cell.items())]
    ranks, steps = integer(run.settings, "ranks"), integer(run.settings, "train", "steps")
    if ranks is not None:
        parts.append(f"{ranks} ranks" if not is_gpu(run) else f"{ranks} GPUs")
    repeats = len({measures.run.pairing for measures in cell.runs})
    if steps is not None:
        parts.append(f"{steps} steps x {repeats} repeat{'s' if repeats != 1 else ''}")
    what = ", ".join(part for part in parts if part)
    return printable(f"{run.study} on {run.site}: {what}"), f"baseline: {baseline_words(cell)}"


def baseline_words(cell: Cell) -> str:
    """What the schemes are compared with."""
    base = cell.row(cell.baseline)
    if base is None:
        return "none"
    run = base.runs[0].run
    native = text(run.settings, "scheme", "algorithm") == "native"
    codec = "uncompressed" if is_uncompressed(run) else printable(base.scheme, 40)
    if not native and text(run.settings, "scheme", "algorithm") is None:
        return printable(base.scheme, 40)
    return f"{codec}, {'MPI library' + chr(39) + 's collectives' if native else 'two-shot collectives'}"


def render(cells: Sequence[Cell], console: Console) -> None:
    """Print each cell: its title, its table, and what follows from it."""
    for i, cell in enumerate(cells):
        if i:
            console.print()
        what, base = title(cell)
        one_line = f"{what}      {base}"
        if len(one_line) <= console.width:
            console.print(Text(one_line, style="bold"))
        else:
            console.print(Text(what, style="bold"))
            console.print(Text(base, style="bold"))
        console.print(_tables(cell, console.width))
        run = _example(cell)
        _sentences(answer(cell, run.site), console)
        _sentences(trouble(cell), console, style="red")
        _sentences(all_notes(cell.runs), console, style="yellow")


def render_runs(runs: Sequence[Measures], console: Console) -> None:
    """Print runs that there is nothing to compare with."""
    unit = flops_unit([run.model_flops_per_rank for run in runs], any(is_gpu(run.run) for run in runs))
    words = ["run", "scheme", "state", "step"]
    figures = [unit.name, "samples/s", "wire/message", "loss", "loss (valid)"]
    if console.width >= _WIDE_RUNS:
        table = _table([*words, *figures], {1, 2}, gap=3)
        for run in runs:
            table.add_row(*_run_words(run), *_run_figures(run, unit))
        console.print(table)
    else:
        first, second = _table(words, {1, 2}, gap=2), _table(["run", *figures], set(), gap=2)
        for run in runs:
            first.add_row(*_run_words(run))
            second.add_row(_plain(run.run.id), *_run_figures(run, unit))
        console.print(Group(first, Text(), second))
    _sentences(_reasons(runs), console, style="red")
    _sentences(all_notes(runs), console, style="yellow")


def _run_words(measures: Measures) -> list[Text]:
    run = measures.run
    last = run.log.last_step if run.log else None
    return [_plain(words) for words in (run.id, run.scheme, run.state, f"{last.step}/{last.steps}" if last else "-")]


def _run_figures(measures: Measures, unit: Unit) -> list[str]:
    return [
        unit.show(measures.model_flops_per_rank),
        significant(measures.samples_per_s),
        ratio(measures.wire_over_message),
        loss(measures.loss_train),
        loss(measures.loss_valid),
    ]


def significant(value: float | None) -> str:
    """A figure with four significant digits, written out."""
    if value is None:
        return "-"
    if not math.isfinite(value) or value == 0:
        return str(value)
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 6)}f}"


def ratio(value: float | Unknown | None) -> str:
    """A ratio, to three decimals."""
    return "-" if value is None else value if value == "unknown" else f"{value:.3f}"


def loss(value: float | None) -> str:
    """A loss, to four decimals."""
    return "-" if value is None else f"{value:.4f}"


def speed_interval(interval: Interval | None) -> str:
    """A ratio of speeds with its interval."""
    return _interval(interval, "{:.2f}", "{:.2f}")


def loss_interval(interval: Interval | None) -> str:
    """A difference of losses with its interval."""
    return _interval(interval, "{:+.4f}", "{:+.4f}")


def _interval(interval: Interval | None, form: str, bound: str) -> str:
    if interval is None:
        return "-"
    if interval.low is None or interval.high is None:
        return f"{form.format(interval.estimate)} (1 pair)"
    return f"{form.format(interval.estimate)} ({bound.format(interval.low)} to {bound.format(interval.high)})"


def _tables(cell: Cell, width: int) -> RenderableType:
    unit = flops_unit([row.model_flops_per_rank for row in cell.rows], is_gpu(_example(cell)))
    change = "vs baseline (95 % CI)"
    speed = ["scheme", unit.name, "samples/s", change, "wire/message"]
    if width >= WIDE:
        table = _table([*speed, "loss (valid)", change, "verdict"], {7}, gap=3)
        for row in cell.rows:
            table.add_row(_plain(row.scheme), *_speed(row, unit), *_loss(row), _verdict(row))
        return table
    first = _table(speed, set(), gap=2)
    second = _table(["scheme", "loss (valid)", change, "verdict"], {3}, gap=2)
    for row in cell.rows:
        first.add_row(_plain(row.scheme), *_speed(row, unit))
        second.add_row(_plain(row.scheme), *_loss(row), _verdict(row))
    return Group(first, Text(), second)


def _table(columns: list[str], words: set[int], *, gap: int) -> Table:
    """A table whose first column, and those in `words`, are words that may wrap; the others are figures."""
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for i, name in enumerate(columns):
        if i == 0 or i in words:
            table.add_column(Text(name), overflow="fold", max_width=_LONGEST_NAME if i == 0 else None)
        else:
            table.add_column(Text(name), justify="right", no_wrap=True)
    return table


def _speed(row: Row, unit: Unit) -> list[str]:
    star = "*" if row.partial else ""
    return [
        unit.show(row.model_flops_per_rank),
        significant(row.samples_per_s) + star,
        speed_interval(row.speed),
        ratio(row.wire_over_message),
    ]


def _loss(row: Row) -> list[str]:
    return [loss(row.loss_valid), loss_interval(row.loss)]


def _verdict(row: Row) -> Text:
    style = next(
        (
            style
            for words, style in ((GOOD, "green"), (WORSE, "yellow"), (NOT_FASTER, ""), (NOT_SHOWN, "yellow"))
            if row.verdict.startswith(words)
        ),
        "" if not row.verdict else "red",
    )
    return Text(printable(row.verdict), style=style)


def _plain(words: str) -> Text:
    return Text(printable(words, 60))


def _reasons(runs: Sequence[Measures]) -> list[str]:
    found = []
    for measures in runs:
        verdict = measures.run.verdict
        if verdict.reason:
            found.append(f"{measures.run.id}: {verdict.reason}" + (f" ({verdict.where})" if verdict.where else ""))
    return found


def _sentences(sentences: Sequence[str], console: Console, style: str = "") -> None:
    for i, sentence in enumerate(sentences):
        if i == 0:
            console.print()
        console.print(Text(printable(sentence, 600), style=style))


def _example(cell: Cell) -> RunResult:
    """A run that knows its settings, preferably one that began."""
    runs = [measures.run for measures in cell.runs]
    return next((run for run in runs if run.settings and run.log), next((run for run in runs if run.settings), runs[0]))


def _model(run: RunResult) -> str:
    name = text(run.settings, "model", "name")
    count = number(run.log.data("configuration"), "parameters") if run.log else None
    if name is None:
        return ""
    return name if count is None else f"{name} {parameters(count)} parameters"


def parameters(count: float) -> str:
    """A number of parameters as people say it: ``0.8 M``, ``20.6 B``."""
    for scale, letter in ((1e9, "B"), (1e5, "M")):
        if count >= scale:
            return f"{count / max(scale, 1e6):.1f} {letter}"
    return f"{count / 1e3:.1f} K"


def _layout(run: RunResult) -> str:
    layout = member(run.settings, "layout")
    if not isinstance(layout, dict):
        return ""
    return " x ".join(f"{name}{size}" for name, size in layout.items())
