"""Combined verdicts about a scheme's speed and loss. A worse loss takes precedence over the speed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hpcbench.contract.events import End
from hpcbench.contract.state import OPEN
from hpcbench.contract.text import make_printable
from hpcbench.present.document import Tone
from hpcbench.report.findings import AS_FAST, INCONCLUSIVE, Loss, Speed
from hpcbench.report.measures import Measures

Group = Literal["good", "worse", "unsteady", "not faster", "as fast", "open", "no loss", "none"]


@dataclass(frozen=True)
class Outcome:
    """Verdict about a scheme."""

    text: str
    group: Group
    """Name of the sentence in the report's summary that lists the scheme."""
    tone: Tone = "warning"


# The texts are also values of `verdict` in JSON and CSV. A change of a text needs a new schema number of both.
GOOD = Outcome("faster, loss no worse", "good", "good")
UNSTEADY = Outcome("faster, loss no worse on average only", "unsteady")
"""The mean loss is no worse, but the loss of at least one pair is worse by more than the margin."""
WORSE_FASTER = Outcome("faster, but the loss is worse", "worse")
WORSE_OPEN = Outcome("speed inconclusive, loss worse", "worse")
WORSE_SLOWER = Outcome("not faster, loss worse", "worse")
WORSE_AS_FAST = Outcome(f"as fast (within {100 * AS_FAST:.0f} %), loss worse", "worse")
AS_FAST_AS = Outcome(f"as fast (within {100 * AS_FAST:.0f} %)", "as fast", "")
NOT_FASTER = Outcome("not faster", "not faster", "")
OPEN_SPEED = Outcome("inconclusive", "open")
NEAR = Outcome("about as fast, inconclusive", "open")
"""The uncorrected interval lies within the "as fast" margin, but the finding is not significant in the report."""
LOSS_OPEN = Outcome("faster, loss inconclusive", "open")
NO_LOSS = Outcome("faster, no loss to compare", "no loss")
NO_BASELINE = Outcome("not compared (no baseline)", "none", "bad")
NO_PAIR = Outcome("not compared (no pair with the baseline)", "none", "bad")

_OUTCOMES: dict[Speed, dict[Loss | None, Outcome]] = {
    "faster": {"worse": WORSE_FASTER, INCONCLUSIVE: LOSS_OPEN, None: NO_LOSS, "no worse": GOOD, "better": GOOD},
    "not faster": {"worse": WORSE_SLOWER},
    "as fast": {"worse": WORSE_AS_FAST},
    INCONCLUSIVE: {"worse": WORSE_OPEN},
}
_OTHERWISE: dict[Speed, Outcome] = {"not faster": NOT_FASTER, "as fast": AS_FAST_AS, INCONCLUSIVE: OPEN_SPEED}

IDLE = "codec never ran"
"""Verdict for schemes whose codecs encoded nothing. The speed and loss of such schemes are unrelated to the codecs."""

_WORST: tuple[str, ...] = (
    "failed",
    "out of memory",
    "timed out",
    "node failure",
    "preempted",
    "lost",
    "unknown",
    "incomplete",
    "stopped",
    "cancelled",
    "suspended",
    "running",
    "pending",
)
"""States of incomplete runs. The verdict names the first state that occurs."""


def resolve_verdict(speed: Speed, loss: Loss | None, *, steady: bool = True, near: bool = False) -> Outcome:
    """Return the outcome for a scheme. The loss is None if no pair has validation losses.

    A scheme is `steady` if no pair's loss is worse by more than the margin. A scheme is `near` if the uncorrected
    interval of the speed lies within the "as fast" margin.
    """
    outcome = _OUTCOMES[speed].get(loss) or _OTHERWISE[speed]
    if outcome is GOOD and not steady:
        return UNSTEADY
    return NEAR if outcome is OPEN_SPEED and near else outcome


def describe_verdict(outcome: Outcome | None, runs: Sequence[Measures], completed: int, *, idle: bool = False) -> str:
    """Return the verdict and the number of incomplete runs, or the failure if runs diverged or no run completed."""
    verdict_text = ": ".join(filter(None, (IDLE if idle else "", outcome.text if outcome else "")))
    states: Counter[str] = Counter(run.run.state for run in runs)
    total = len(runs)
    if states["nan"]:
        first = next(run for run in runs if run.run.state == "nan")
        step = first.diverged_at or (first.run.log.read_event(End).steps if first.run.log else None)
        at = f" (NaN at step {step})" if step else " (NaN)"
        return f"diverged{at}" + (f" in {states['nan']} of {total} runs" if states["nan"] < total else "")
    worst = next((state for state in _WORST if states[state]), None)
    if worst is None:
        return verdict_text
    if not completed:
        reason = next(run.run.verdict.reason for run in runs if run.run.state == worst)
        return worst if worst in OPEN or not reason else f"{worst}: {make_printable(reason, 72)}"
    return f"{verdict_text} ({states[worst]} of {total} runs {worst})".strip()
