"""A pipeline without a flush: the order of work, and the versions of the weights, as pure data.

Micro-batches are numbered from the start of the run, and 1F1B processes all of them: at the end of a step the pipeline
stays full. A step is still m backward passes and one update of the weights, so stages compute with older weights.
Version t is the weights after t updates.

================ ============================================ ===============================
schedule         version of micro-batch i on stage r of p     versions held on stage r
================ ============================================ ===============================
pipedream        the newest: floor((i - (p - 1 - r)) / m)     ceil((p - 1 - r) / m) + 1
with vertical    the newest where it entered:                 ceil((p - 1) / m) + 1
sync             floor((i - (p - 1)) / m)
pipedream-2bw    of the step before: floor(i / m) - 1         2
================ ============================================ ===============================

m is the number of micro-batches in a step, and no version is less than 0. With m = 1 the first two are those of
PipeDream (arXiv 1806.03377): W(t+1) = W(t) - lr * gradient(W1(t-p+1), ..., Wp(t)). The third is PipeDream-2BW (arXiv
2006.09503): W(t+1) = W(t) - lr * gradient(W(t-1)).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hpcbench.contract.training import Train
from hpcbench.parallel.schedule import Action


@dataclass(frozen=True)
class Stream:
    """The work of all stages in all steps.

    Attributes
    ----------
    stages
        Stages of the pipeline.
    micro_batches
        Micro-batches of one replica in a step.
    steps
        Steps of the run.
    vertical
        Whether a micro-batch uses the same version on every stage.
    double
        Whether two versions are enough, because a step uses the version of the step before.
    """

    stages: int
    micro_batches: int
    steps: int
    vertical: bool = False
    double: bool = False

    @classmethod
    def of(cls, train: Train, *, stages: int, micro_batches: int) -> "Stream":
        """Make the stream of a run."""
        double = train.schedule == "pipedream-2bw"
        return cls(stages, micro_batches, train.steps, vertical=train.vertical_sync, double=double)

    @property
    def in_flight(self) -> int:
        """Micro-batches of a replica that have entered and not left: one for each stage (NOAM of PipeDream)."""
        return self.stages

    @property
    def total(self) -> int:
        """Micro-batches of the run."""
        return self.steps * self.micro_batches

    @property
    def lag(self) -> int:
        """Largest lead of the last stage over the first in steps, plus 1."""
        return -(-(self.stages - 1) // self.micro_batches) + 1

    def ahead(self, stage: int) -> int:
        """Return the lead of a stage's forward passes over its backward passes, in micro-batches."""
        return self.stages - 1 - stage

    def actions(self, stage: int, step: int) -> Iterator[Action]:
        """Yield the actions of a stage in a step: the first one fills the pipeline, and the last ones empty it."""
        m, ahead = self.micro_batches, self.ahead(stage)
        if step == 0:
            yield from (Action("forward", i) for i in range(min(ahead, self.total)))
        for i in range(step * m, (step + 1) * m):
            if i + ahead < self.total:
                yield Action("forward", i + ahead)
            yield Action("backward", i)

    def entered(self, stage: int, step: int) -> range:
        """Return the micro-batches that wait on a stage for their backward pass after `step` steps."""
        first = step * self.micro_batches
        return range(first, min(first + self.ahead(stage), self.total))

    def version(self, stage: int, i: int) -> int:
        """Return the version of the weights that a stage uses for micro-batch `i`."""
        if self.double:
            return max(i // self.micro_batches - 1, 0)
        return max((i - self.ahead(0 if self.vertical else stage)) // self.micro_batches, 0)

    def versions(self, stage: int) -> int:
        """Return the largest number of versions that a stage holds, including the newest, in a long run."""
        if self.double:
            return 2
        return -(-self.ahead(0 if self.vertical else stage) // self.micro_batches) + 1
