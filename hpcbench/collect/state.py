"""How a log that has been read ends, as a run is judged by it."""

import math

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import judge
from hpcbench.contract.ending import Ending
from hpcbench.contract.events import End, Start
from hpcbench.contract.state import Verdict


def ending(log: RunLog) -> Ending:
    """How far the log comes."""
    end, last = log.event(End), log.last_step
    return Ending(
        path=log.path,
        lines=log.lines,
        begun=log.event(Start) is not None or last is not None,
        state=end.state if end else None,
        reason=end.reason or "" if end else "",
        end_line=end.line if end else None,
        step=last.step if last else None,
        steps=last.steps if last else None,
        loss=last.loss if last else None,
        step_line=last.line if last else None,
        cut=log.cut,
        own=log.dialect == "hpcbench",
        diverged=diverged_at(log),
    )


def judge_log(log: RunLog) -> Verdict:
    """State of a run of which there is but the log."""
    return judge.judge_log(ending(log))


def diverged_at(log: RunLog | None) -> int | None:
    """The first step whose loss is no finite number."""
    if log is None or all(map(math.isfinite, log.steps.column("loss"))):
        return None
    return next(int(step) for step, loss in log.steps.columns("step", "loss") if not math.isfinite(loss))
