"""Runs that there is nothing to compare with, each by its log."""

from collections.abc import Callable

from hpcbench.collect.submission import Submission
from hpcbench.report.compare import Cell
from hpcbench.report.document import Column, Entry, Table
from hpcbench.report.measures import Measures, is_gpu
from hpcbench.report.notation import bytes_unit, flops_unit, loss, name, percent, quantity, ratio, seconds_unit
from hpcbench.report.tables.flops import KINDS
from hpcbench.report.tables.tabulate import Field, tabulate

_OWN = "hpcbench"


def logs(submission: Submission, cells: list[Cell]) -> Table | None:
    """State, speed and loss of each run; only the columns that a log fills."""
    runs = [run for cell in cells for run in cell.runs]
    gpu = any(is_gpu(run.run) for run in runs)
    unit = seconds_unit(run.step_seconds for run in runs)
    memory = bytes_unit(run.memory.device for run in runs)
    foreign = any(_dialect(run) != _OWN for run in runs)

    def flops(key: str, mark: str, what: str, value: Callable[[Measures], float | None]) -> Field[Measures]:
        own = flops_unit([value(run) for run in runs], gpu)
        return Column(key, own.name + mark, group=1, help=what), lambda run: quantity(value(run), own.show)

    fields: list[Field[Measures]] = [
        (Column("run", "run", words=True), lambda run: name(run.run.id)),
        (Column("dialect", "dialect", words=True), lambda run: name(_dialect(run) if foreign else "")),
        (Column("scheme", "scheme", words=True), lambda run: name("" if foreign else run.run.scheme)),
        (Column("state", "state", words=True), lambda run: Entry(run.run.state, run.run.state)),
        (Column("step", "step", words=True), _step),
        (Column("step_seconds", f"step time ({unit.name})"), lambda run: quantity(run.step_seconds, unit.show)),
        *(flops(*kind) for kind in KINDS),
        (Column("mfu", "MFU", group=1), lambda run: quantity(run.mfu, percent)),
        (Column("hfu", "HFU", group=1), lambda run: quantity(run.hfu, percent)),
        (Column("samples_per_s", "samples/s", group=2), lambda run: quantity(run.samples_per_s)),
        (Column("tokens_per_s", "tokens/s", group=2), lambda run: quantity(run.tokens_per_s)),
        (
            Column("tokens_per_s_per_rank", "tokens/s/GPU" if gpu else "tokens/s/rank", group=2),
            lambda run: quantity(run.tokens_per_s_per_rank),
        ),
        (
            Column("wire_over_message", "wire/message", group=2),
            lambda run: Entry(ratio(run.wire_over_message), run.wire_over_message),
        ),
        (
            Column("device_bytes", f"memory ({memory.name})", group=3),
            lambda run: quantity(run.memory.device, memory.show),
        ),
        (Column("loss_train", "loss", group=3), lambda run: quantity(run.loss_train, loss)),
        (Column("loss_valid", "loss (valid)", group=3), lambda run: quantity(run.loss_valid, loss)),
    ]
    return tabulate("logs", "", runs, fields)


def _dialect(measures: Measures) -> str:
    return measures.run.log.dialect if measures.run.log else _OWN


def _step(measures: Measures) -> Entry:
    last = measures.run.log.last_step if measures.run.log else None
    if last is None:
        return Entry()
    return Entry(f"{last.step}/{last.steps}" if last.steps else str(last.step), last.step)
