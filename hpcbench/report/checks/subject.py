"""What is checked: a run's log, with what its numbers rest on."""

from dataclasses import dataclass

from hpcbench.collect.lines import printable
from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import RunResult
from hpcbench.report.basis import Basis
from hpcbench.report.relations import Mismatch, Relation, mismatch
from hpcbench.report.traffic import TimeSplit, Traffic

_COUNTS = {"consumed_samples": 1.0}
"""Of what no framework rounds."""
_UNITS = {
    "seconds": 1e-6,
    "samples_per_s": 1e-2,
    "model_flops_per_rank": 1e6,
    "hardware_flops_per_rank": 1e6,
}
"""Of the last digits in our own lines."""


@dataclass(frozen=True)
class Subject:
    """A run, its log, and what was taken from them."""

    run: RunResult
    log: RunLog
    basis: Basis
    channels: tuple[Traffic, ...]
    """What each channel carried."""
    time: TimeSplit | None
    """Where the time of a step went."""

    @property
    def id(self) -> str:
        """The run's name, fit to be printed."""
        return printable(self.run.id, 80)

    @property
    def own(self) -> bool:
        """Whether the log is one of hpcbench."""
        return self.log.dialect == "hpcbench"

    def at(self, line: int | None, words: str) -> str:
        """A sentence on a line of the log, or on all of it."""
        place = printable(str(self.log.path) if line is None else self.log.where(line))
        return f"{self.id}: {place}: {words}"

    def mismatch(self, relation: Relation) -> Mismatch | None:
        """The first step at which a relation does not hold."""
        return mismatch(self.log.steps, relation, _UNITS if self.own else _COUNTS)
