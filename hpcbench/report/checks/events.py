"""Checks of a run's events: missing, damaged or implausible lines, and inconsistent sums."""

from collections.abc import Iterator
from math import isfinite

from hpcbench.contract import events
from hpcbench.contract.events import Binding, End, ProgramCalls, Start, UnknownGroup
from hpcbench.contract.text import make_printable
from hpcbench.contract.times import measure_seconds
from hpcbench.report.checks.relations import TOLERANCE, CheckedRun
from hpcbench.report.resources import PARTS, read_stages
from hpcbench.report.traffic import Unknown, add_bytes, find_window, select_counted


def note_resumption(subject: CheckedRun) -> Iterator[str]:
    """Note that a run was resumed from a checkpoint, and which steps its speed is based on."""
    if not subject.log.resumed_from:
        return
    attempt = subject.log.read_event(Start).attempt
    again = f" (attempt {attempt})" if attempt else ""
    steps = subject.log.steps.column("step", first=subject.basis.first)
    counted = f": its speed uses steps {steps[0]} to {steps[-1]}" if steps else ""
    yield f"{subject.id}: was resumed at step {subject.log.resumed_from}{again}{counted}"


def note_binding(subject: CheckedRun) -> Iterator[str]:
    """Describe the binding of ranks.

    The notes omit the run's name, so that identical notes of several runs are shown once.
    """
    yield from map(make_printable, subject.log.read_event(Binding).warnings or ())


def note_groups(subject: CheckedRun) -> Iterator[str]:
    """Note process groups of unknown dimension. The note omits the run's name, as in `note_binding`."""
    for event in subject.log.events:
        if isinstance(event, UnknownGroup):
            yield make_printable(
                f"the dimension of group {event.group!r} is unknown, so its {event.bytes} bytes were sent "
                f"uncompressed: in program.groups, add {event.remedy}"
            )


def check_losses(subject: CheckedRun) -> Iterator[str]:
    """Note the first loss that is NaN or infinite."""
    if all(map(isfinite, subject.log.steps.column("loss"))):
        return
    rows = [row for row in subject.log.steps.columns("line", "step", "loss") if not isfinite(row[2])]
    line, step, loss = rows[0]
    yield subject.at(int(line), f"the loss of step {step:.0f} is {loss}" + _count_more(len(rows) - 1))


def check_damage(subject: CheckedRun) -> Iterator[str]:
    """Note incomplete and missing lines."""
    log = subject.log
    missing = log.missing_steps() if subject.own else []
    if missing:
        yield subject.at(None, f"step {missing[0]} is not in the log" + _count_more(len(missing) - 1))
    if log.notes and subject.run.state not in ("running", "pending"):
        first = log.notes[0]
        yield subject.at(first.line, first.why + _count_more(len(log.notes) - 1))


def check_end(subject: CheckedRun) -> Iterator[str]:
    """Note a completed run without its last step or evaluation."""
    log, event = subject.log, subject.log.event(End)
    if subject.run.state != "completed" or not subject.own:
        return
    if log.last_step is not None and (not event or event.steps != log.last_step.step):
        steps_of_event = event.steps if event else None
        line = event.line if event else None
        yield subject.at(
            line, f"the end event reports {steps_of_event} steps, but the last step in the log is {log.last_step.step}"
        )
    if log.final_loss() is None and log.event(ProgramCalls) is None:  # the steps of other programs are unknown
        yield subject.at(None, "no evaluation after the last step")


def _count_more(count: int) -> str:
    return f", and {count} more" if count > 0 else ""


_CLOCK = 1.0
"""Maximum difference in seconds between two clocks of a machine during a run."""


def check_traffic_bytes(subject: CheckedRun) -> Iterator[str]:
    """Check that the channels' bytes equal the sums of the step lines."""
    event = subject.log.event(events.TrafficTotals)
    steps = find_window(subject.log)
    if not event or not subject.channels or not steps:
        return
    sums: dict[str, list[int | Unknown]] = {
        "message": [channel.message_bytes for channel in subject.channels],
        "wire": [channel.wire_bytes for channel in subject.channels],
    }
    for name, values in sums.items():
        sent, printed = add_bytes(values), select_counted(subject.log, f"{name}_bytes")
        if sent != "unknown" and len(printed) == len(steps) and sent != sum(printed):
            of_lines = f"the lines of steps {steps.start} to {steps.stop - 1} report {sum(printed):.0f}"
            yield subject.at(event.line, f"the channels' {name} bytes are {sent}, but {of_lines}")


def check_wire(subject: CheckedRun) -> Iterator[str]:
    """Note codecs that enlarge messages, and channels without a codec whose wire and message bytes differ."""
    event = subject.log.event(events.TrafficTotals)
    for channel in subject.channels if event else ():
        wire, message = channel.wire_bytes, channel.message_bytes
        if event is None or wire == "unknown" or channel.codec is None:
            continue
        name = " ".join(channel.key)
        if channel.codec == "none" and wire != message:
            yield subject.at(
                event.line, f"{name}: {wire} wire bytes for {message} message bytes, although no codec is set"
            )
        elif wire > message:
            yield subject.at(
                event.line,
                f"{name}: {channel.codec} makes messages larger: {wire} wire bytes for {message} message bytes",
            )


def check_waiting(subject: CheckedRun) -> Iterator[str]:
    """Check that no rank waits longer than a step takes."""
    event, time = subject.log.event(events.TrafficTotals), subject.time
    if event and time and time.exposed > time.step * (1 + TOLERANCE):
        text = f"ranks waited {time.exposed:.4g} s per step for messages, but a step took {time.step:.4g} s"
        yield subject.at(event.line, text)


def check_phases(subject: CheckedRun) -> Iterator[str]:
    """Check that each stage's phases add up to the step time."""
    event = subject.log.event(events.PhaseTimes)
    for stage, row in enumerate(read_stages(subject.log) if event else ()):
        phase_sum = sum(row[part] for part in PARTS)
        if event and abs(phase_sum - row["step"]) > TOLERANCE * row["step"]:
            text = (
                f"the phases of stage {stage} add up to {phase_sum:.4g} s per step, but its step took "
                f"{row['step']:.4g} s"
            )
            yield subject.at(event.line, text)


def check_times(subject: CheckedRun) -> Iterator[str]:
    """Compare step times with the duration of the run, and the duration with the wall clock."""
    event = subject.log.event(events.End)
    if not event:
        return
    steps, run_seconds = sum(filter(isfinite, subject.log.steps.column("seconds"))), event.seconds
    if run_seconds is not None and steps > run_seconds * (1 + TOLERANCE):
        yield subject.at(event.line, f"the run took {run_seconds:.3f} s, but its steps took {steps:.3f} s")
    clock = measure_seconds(subject.log.read_event(events.Start).time, event.time)
    if run_seconds is not None and clock is not None and run_seconds > clock * (1 + TOLERANCE) + _CLOCK:
        yield subject.at(
            event.line,
            f"the run took {run_seconds:.3f} s, but only {clock:.3f} s passed between its start and end times",
        )
