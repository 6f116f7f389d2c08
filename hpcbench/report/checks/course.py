"""How the run went, as far as a reader must know: what is missing, damaged, odd or no number."""

from collections.abc import Iterator
from math import isfinite

from hpcbench.collect.lines import printable
from hpcbench.contract.events import Binding, End, Start
from hpcbench.report.checks.subject import Subject


def resumed(subject: Subject) -> Iterator[str]:
    """That it began anew from a checkpoint, and which steps count then."""
    if not subject.log.resumed_from:
        return
    attempt = subject.log.said(Start).attempt
    again = f" (attempt {attempt})" if attempt else ""
    steps = subject.log.steps.column("step", first=subject.basis.first)
    counted = f": steps {steps[0]} to {steps[-1]} count for its speed" if steps else ""
    yield f"{subject.id}: was resumed at step {subject.log.resumed_from}{again}{counted}"


def binding(subject: Subject) -> Iterator[str]:
    """Without the run's name: most runs of a study lie alike, and what all say is shown once."""
    yield from map(printable, subject.log.said(Binding).warnings or ())


def losses(subject: Subject) -> Iterator[str]:
    """The first loss that is no number."""
    if all(map(isfinite, subject.log.steps.column("loss"))):
        return
    rows = [row for row in subject.log.steps.columns("line", "step", "loss") if not isfinite(row[2])]
    line, step, loss = rows[0]
    yield subject.at(int(line), f"the loss of step {step:.0f} is {loss}" + _more(len(rows) - 1))


def damage(subject: Subject) -> Iterator[str]:
    """Lines that are not whole, or missing where each step has one."""
    log = subject.log
    missing = log.missing_steps() if subject.own else []
    if missing:
        yield subject.at(None, f"step {missing[0]} is not in the log" + _more(len(missing) - 1))
    if log.notes and subject.run.state not in ("running", "pending"):
        first = log.notes[0]
        yield subject.at(first.line, first.why + _more(len(log.notes) - 1))


def end(subject: Subject) -> Iterator[str]:
    """Whether a run that completed has come to its end."""
    log, event = subject.log, subject.log.event(End)
    if subject.run.state != "completed" or not subject.own:
        return
    if log.last_step is not None and (not event or event.steps != log.last_step.step):
        said = event.steps if event else None
        line = event.line if event else None
        yield subject.at(line, f"the end event says {said} steps, the log holds {log.last_step.step}")
    if log.final_loss() is None:
        yield subject.at(None, "no evaluation after the last step")


def _more(count: int) -> str:
    return f", and {count} more" if count > 0 else ""
