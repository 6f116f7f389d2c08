"""Tests of the trace recorder: one clock for host and device, a limited number of spans, and no recorder (None)."""

import time
from typing import Any, cast

from hpcbench.comm.clock import DeviceClock, HostClock
from hpcbench.comm.memory import Tally
from hpcbench.comm.policy import Policy
from hpcbench.comm.recorder import Recorder
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.trace import CODEC, STEP, STEPS
from hpcbench.contract.traffic import Dimension, MessageKind, Phase


class Event:
    """A mark in a device's stream, on a clock unrelated to the host's."""

    def __init__(self, at: float) -> None:
        self.at = at

    def wait(self) -> None:
        pass

    def since(self, earlier: "Event") -> float:
        return self.at - earlier.at


class Device:
    """A device with a settable time for its next mark."""

    at = 7000.0

    def mark(self, _stream: int) -> Event:
        return Event(self.at)


def test_spans_of_a_device_stand_at_the_hosts_times() -> None:
    device = Device()
    clock = DeviceClock(cast(Any, device), 0, [])
    recorder = Recorder(clock)
    before = time.perf_counter()
    recorder.begin(3)
    after = time.perf_counter()
    recorder.span(STEPS, "forward", clock, Event(7000.5), Event(7002.0), {})
    recorder.of("DP BACKWARD GRAD").coded_on_device("encode", cast(Any, Event(7001.0)), cast(Any, Event(7001.25)))
    recorder.of("EXACT STEP OPTIM").waited(HostClock(), 4.0, 5.0)
    forward, encode, wait = recorder.spans()
    assert forward.begin == float("inf"), "the time is unknown until the device has passed the mark"
    clock.settle()
    forward, encode, wait = recorder.spans()
    assert before + 0.5 <= forward.begin <= after + 0.5 and abs(forward.end - forward.begin - 1.5) < 1e-6
    assert abs(encode.begin - forward.begin - 0.5) < 1e-6 and (encode.track, encode.name) == (CODEC, "encode")
    assert (wait.begin, wait.end, wait.step) == (4.0, 5.0, 3), "host arrays are timed by the host"


def test_spans_beyond_the_limit_are_counted_but_steps_are_kept() -> None:
    recorder = Recorder(HostClock(), most=2)
    recorder.begin(1)
    for k in range(5):
        recorder.add(STEPS, "forward", float(k), k + 0.5, {})
    recorder.add(STEPS, STEP, 0.0, 5.0, {})
    assert [span.name for span in recorder.spans()] == ["forward", "forward", STEP] and recorder.left_out == 3


def test_channels_record_while_a_recorder_is_attached() -> None:
    policy = Policy(NamedScheme(name="x", algorithm="native", default="none"))
    first = policy.channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD)
    assert first.recorder is None
    recorder = Recorder(HostClock())
    recorder.begin(1)
    policy.record(recorder)
    later = policy.channel(Dimension.PP, Phase.FORWARD, MessageKind.ACT)
    tally = Tally(recorder=first.recorder)
    tally.encoded(time.perf_counter() - 0.25)
    assert later.recorder is not None
    (span,) = recorder.spans()
    assert span.about == {"channel": "DP BACKWARD GRAD"} and abs(span.end - span.begin - tally.encode_s) < 1e-9
    policy.record(None)
    assert first.recorder is None and later.recorder is None
