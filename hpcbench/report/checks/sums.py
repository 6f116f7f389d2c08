"""Bytes and seconds of the steps, against what the run says of all of them together."""

from collections.abc import Iterator
from math import isfinite

from hpcbench.contract import events
from hpcbench.contract.times import elapsed
from hpcbench.report.checks.subject import Subject
from hpcbench.report.phases import PARTS, by_stage
from hpcbench.report.relations import TOLERANCE
from hpcbench.report.traffic import Unknown, counted, total, window

_CLOCK = 1.0
"""Seconds by which the clocks of a machine may disagree while it runs."""


def traffic_bytes(subject: Subject) -> Iterator[str]:
    """What the channels counted, against the lines of the same steps: whole numbers, which must be equal."""
    event = subject.log.event(events.Traffic)
    if not event or not subject.channels:
        return
    steps = window(subject.log)
    sums: dict[str, list[int | Unknown]] = {
        "message": [channel.message_bytes for channel in subject.channels],
        "wire": [channel.wire_bytes for channel in subject.channels],
    }
    for name, values in sums.items():
        sent, printed = total(values), counted(subject.log, f"{name}_bytes")
        if sent != "unknown" and len(printed) == len(steps) and sent != sum(printed):
            said = f"the lines of steps {steps.start} to {steps.stop - 1} say {sum(printed):.0f}"
            yield subject.at(event.line, f"the channels' {name} bytes are {sent}, {said}")


def wire(subject: Subject) -> Iterator[str]:
    """A codec that makes messages larger, and one that is none and changes them."""
    event = subject.log.event(events.Traffic)
    for channel in subject.channels if event else ():
        wire, message = channel.wire_bytes, channel.message_bytes
        if event is None or wire == "unknown" or channel.codec is None:
            continue
        name = " ".join(word for word in (channel.dimension, channel.phase, channel.kind) if word)
        if channel.codec == "none" and wire != message:
            yield subject.at(event.line, f"{name}: {wire} wire bytes for {message} message bytes, without a codec")
        elif wire > message:
            yield subject.at(
                event.line,
                f"{name}: {channel.codec} makes messages larger: {wire} wire bytes for {message} message bytes",
            )


def waiting(subject: Subject) -> Iterator[str]:
    """No rank waits for longer than a step takes."""
    event, time = subject.log.event(events.Traffic), subject.time
    if event and time and time.exposed > time.step * (1 + TOLERANCE):
        words = f"ranks waited {time.exposed:.4g} s a step for messages, and a step took {time.step:.4g} s"
        yield subject.at(event.line, words)


def phases(subject: Subject) -> Iterator[str]:
    """What a stage was about in a step, against its step: whoever divides it leaves nothing out."""
    event = subject.log.event(events.Phases)
    for stage, row in enumerate(by_stage(subject.log) if event else ()):
        whole = sum(row[part] for part in PARTS)
        if event and abs(whole - row["step"]) > TOLERANCE * row["step"]:
            words = f"the phases of stage {stage} come to {whole:.4g} s a step, and its step took {row['step']:.4g} s"
            yield subject.at(event.line, words)


def times(subject: Subject) -> Iterator[str]:
    """Steps against the run, and the run against the clock."""
    event = subject.log.event(events.End)
    if not event:
        return
    steps, whole = sum(filter(isfinite, subject.log.steps.column("seconds"))), event.seconds
    if whole is not None and steps > whole * (1 + TOLERANCE):
        yield subject.at(event.line, f"the run took {whole:.3f} s, its steps {steps:.3f} s")
    clock = elapsed(subject.log.said(events.Start).time, event.time)
    if whole is not None and clock is not None and whole > clock * (1 + TOLERANCE) + _CLOCK:
        yield subject.at(event.line, f"the run took {whole:.3f} s, and {clock:.3f} s by the times of its start and end")
