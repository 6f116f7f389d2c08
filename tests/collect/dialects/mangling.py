"""Logs of the fixtures, and parsed results of damaged copies."""

import io
import math
from pathlib import Path

from hpcbench.collect.dialects.dialect import Dialect
from hpcbench.collect.dialects.reader import DialectReader
from hpcbench.collect.dialects.table import DIALECTS
from hpcbench.collect.dialects.texts import texts
from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import from_log
from hpcbench.contract.events import Evaluation

DIRECTORY = Path(__file__).parent / "logs"
LOGS = {path.stem: path.read_bytes() for path in sorted(DIRECTORY.glob("*.log"))}
BY_LINE_END = {
    "megatron-2020", "nanotron-2024", "deepspeed-2022", "nanogpt", "llmc-cuda", "llmc-others", "nemo", "verl", "mlperf",
}  # fmt: skip
"""Logs whose lines end with the step number or an end mark, so that a cut line is recognized as incomplete."""

Quantities = dict[int, dict[str, float | str]]


def lines_of(name: str) -> list[str]:
    return LOGS[name].decode().splitlines()


def read_as(dialect: Dialect, data: bytes) -> RunLog:
    reader = DialectReader(Path("log.txt"), dialect)
    for text in texts(io.BytesIO(data)):
        reader.feed(text)
    return reader.close()


def quantities(log: RunLog) -> Quantities:
    return {
        record.step: {
            name: "nan" if isinstance(value, float) and math.isnan(value) else value
            for name, value in vars(record).items()
            if value is not None and name != "line"
        }
        for record in log.steps.values()
    }


def _truth(name: str) -> RunLog:
    log = from_log(DIRECTORY / f"{name}.log").log
    assert log is not None
    return log


TRUTH = {name: quantities(_truth(name)) for name in LOGS}
DIALECT = {name: next(d for d in DIALECTS if d.name == _truth(name).dialect) for name in LOGS}


def evaluations(log: RunLog) -> list[tuple[int | None, str | None, float | None]]:
    return [(event.step, event.split, event.loss) for event in log.events if isinstance(event, Evaluation)]


EVALUATIONS = {name: evaluations(_truth(name)) for name in LOGS}


def within(quantities: Quantities, truth: Quantities) -> bool:
    """Return whether every parsed value also occurs in the original log."""
    return all(values.items() <= truth.get(step, {}).items() for step, values in quantities.items())
