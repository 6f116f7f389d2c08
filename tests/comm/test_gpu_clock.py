"""Tests of device timing: the time between two marks is known once the stream has passed both."""

from emulated_accelerator import CALLER, LazyAccelerator

from hpcbench.comm.clock import DeviceClock, HostClock


def test_a_span_of_a_stream_is_counted_when_the_clock_is_settled():
    device, spans, seconds, done = LazyAccelerator(), [], [], []
    clock = DeviceClock(device, CALLER, spans)
    device.streams.put(CALLER, lambda: done.append("before"))
    begin = clock.mark()
    for k in range(3):
        device.streams.put(CALLER, lambda k=k: done.append(k))
    clock.count(begin, clock.mark(), seconds.append)
    assert not seconds and not done, "nothing is counted before a wait"
    clock.settle()
    assert done == ["before", 0, 1, 2]
    assert seconds == [3 * 1e-9]  # the emulated device counts 1 ns per pending operation
    clock.settle()
    assert len(seconds) == 1


def test_unsettled_spans_do_not_accumulate():
    device, spans, seconds = LazyAccelerator(), [], []
    clock = DeviceClock(device, CALLER, spans)
    for _ in range(DeviceClock._MOST + 1):
        clock.count(clock.mark(), clock.mark(), seconds.append)
    assert not spans and len(seconds) == DeviceClock._MOST + 1


def test_the_host_counts_at_once():
    clock, seconds = HostClock(), []
    clock.count(clock.mark(), clock.mark(), seconds.append)
    assert 0 <= seconds[0] < 10
