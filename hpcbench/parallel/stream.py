"""Schedule of a pipeline without flush: order of actions and weight versions, as pure data.

Micro-batches are numbered from the start of the run. A single 1F1B schedule processes all micro-batches of the run,
so the pipeline stays full between steps. A step still consists of m backward passes and one weight update. The stages
therefore compute with weights that are not up to date. Version t denotes the weights after t updates.

================ ============================================ ===============================
schedule         version of micro-batch i on stage r of p     versions held on stage r
================ ============================================ ===============================
pipedream        the newest: floor((i - (p - 1 - r)) / m)     ceil((p - 1 - r) / m) + 1
with vertical    the newest on stage 0:                       ceil((p - 1) / m) + 1
sync             floor((i - (p - 1)) / m)
pipedream-2bw    previous step: floor(i / m) - 1              2
================ ============================================ ===============================

m is the number of micro-batches per step. Negative versions are replaced by 0. With m = 1, the first schedule is
PipeDream (arXiv 1806.03377), W(t+1) = W(t) - lr * gradient(W1(t-p+1), ..., Wp(t)), and the second is PipeDream with
vertical sync. The third schedule is PipeDream-2BW (arXiv 2006.09503), W(t+1) = W(t) - lr * gradient(W(t-1)).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hpcbench.contract.training import Train
from hpcbench.parallel.schedule import Action


@dataclass(frozen=True)
class Stream:
    """Actions and weight versions of all stages in all steps.

    Attributes
    ----------
    stages
        Number of pipeline stages.
    micro_batches
        Number of micro-batches per replica and step.
    steps
        Number of steps of the run.
    vertical
        Whether a micro-batch uses the same version on every stage.
    double
        Whether each step uses the weights of the previous step, so that two versions suffice.
    """

    stages: int
    micro_batches: int
    steps: int
    vertical: bool = False
    double: bool = False

    @classmethod
    def of(cls, train: Train, *, stages: int, micro_batches: int) -> "Stream":
        """Create the stream of a run."""
        double = train.schedule == "pipedream-2bw"
        return cls(stages, micro_batches, train.steps, vertical=train.vertical_sync, double=double)

    @property
    def total(self) -> int:
        """Number of micro-batches of the run."""
        return self.steps * self.micro_batches

    @property
    def lag(self) -> int:
        """Largest number of steps between the positions of two stages, plus 1."""
        return -(-(self.stages - 1) // self.micro_batches) + 1

    def ahead(self, stage: int) -> int:
        """Return how many micro-batches a stage's forward passes are ahead of its backward passes."""
        return self.stages - 1 - stage

    def actions(self, stage: int, step: int) -> Iterator[Action]:
        """Yield the actions of a stage in a step. The first step fills the pipeline, and the last steps drain it."""
        m, ahead = self.micro_batches, self.ahead(stage)
        if step == 0:
            yield from (Action("forward", i) for i in range(min(ahead, self.total)))
        for i in range(step * m, (step + 1) * m):
            if i + ahead < self.total:
                yield Action("forward", i + ahead)
            yield Action("backward", i)

    def entered(self, stage: int, step: int) -> range:
        """Return the micro-batches that wait for their backward pass on a stage after `step` steps."""
        first = step * self.micro_batches
        return range(first, min(first + self.ahead(stage), self.total))

    def version(self, stage: int, i: int) -> int:
        """Return the version of the weights that a stage uses for micro-batch `i`."""
        if self.double:
            return max(i // self.micro_batches - 1, 0)
        return max((i - self.ahead(0 if self.vertical else stage)) // self.micro_batches, 0)

    def versions(self, stage: int) -> int:
        """Return the maximum number of versions, including the newest, that a stage holds in a long run."""
        if self.double:
            return 2
        return -(-self.ahead(0 if self.vertical else stage) // self.micro_batches) + 1
