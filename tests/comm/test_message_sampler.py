"""Tests of the message sampler: selection of messages, size limits, and copies in the dtype that is sent."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulated_accelerator import CALLER, LazyAccelerator, OnDevice

from hpcbench.comm.gpu_pools import Pools
from hpcbench.comm.message_sampler import MessageSampler, choose_evenly
from hpcbench.comm.places import DevicePlace, Places
from hpcbench.comm.policy import Policy
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.traffic import Dimension, MessageKind, Phase

F32 = np.dtype(np.float32)


def vector(n: int, first: float = 0.0) -> Any:
    return np.arange(n, dtype=np.float32) + first


def place_of(x: Any) -> Any:
    place, _ = Places().of(x)
    return place


@pytest.mark.parametrize(
    ("count", "each", "numbers"),
    [(0, 2, {0, 1}), (1, 2, {0, 1}), (9, 1, {4}), (9, 2, {0, 8}), (9, 3, {0, 4, 8}), (100, 4, {0, 33, 66, 99})],
)
def test_samples_are_spread_over_the_messages_of_the_previous_step(count: int, each: int, numbers: set[int]) -> None:
    assert choose_evenly(count, each) == numbers


@pytest.mark.parametrize("each", range(1, 8))
def test_the_number_of_samples_is_exact(each: int) -> None:
    for count in range(each, 60):
        assert len(choose_evenly(count, each)) == each and max(choose_evenly(count, each)) < count


def test_samples_are_copies_of_the_first_values() -> None:
    sampler = MessageSampler(each=5, message_bytes=40, step_bytes=100)
    channel = sampler.add_channel("DP BACKWARD GRAD")
    sampler.begin(sampled=True)
    x = vector(16)
    place = place_of(x)
    channel.count("all-to-all", place, (x[:4], x[8:]), F32, (-1, 4))
    x[:] = -1
    channel.count("all-to-all", place, (vector(9),), np.dtype(ml_dtypes.bfloat16), None)
    channel.count("all-to-all", place, (vector(30),), F32, None)
    channel.count("all-to-all", place, (vector(30),), F32, None)
    first, second, third = sampler.end()
    assert np.frombuffer(first.values, F32).tolist() == [0, 1, 2, 3, 8, 9, 10, 11, 12, 13], "40 bytes of 48"
    assert (first.size, len(first.values), first.parts[0].shape, first.parts[0].begin) == (12, 40, (3, 4), 0)
    assert (second.dtype, second.values) == ("bfloat16", vector(9).astype(ml_dtypes.bfloat16).tobytes())
    assert len(third.values) == 40 and [sample.place for sample in (first, second, third)] == [0, 1, 2]
    assert sampler.left_out == 1, "18 bytes after 40 and 40 leave 2 of 100"


def test_messages_outside_of_steps_do_not_count() -> None:
    sampler = MessageSampler(each=2, message_bytes=400, step_bytes=4000)
    channel = sampler.add_channel("DP BACKWARD GRAD")
    x = vector(3)

    def send(n: int, first: float) -> None:
        for k in range(n):
            channel.count("send", place_of(x), (vector(3, first + k),), F32, None)

    send(3, 100.0)  # before the first step
    sampler.begin(sampled=False)
    send(5, 200.0)
    assert sampler.end() == ()
    send(9, 300.0)  # an evaluation
    sampler.begin(sampled=True)
    send(5, 400.0)
    samples = sampler.end()
    assert [np.frombuffer(sample.values, F32)[0] for sample in samples] == [400, 404] and [
        sample.place for sample in samples
    ] == [0, 4]
    send(2, 500.0)
    sampler.begin(sampled=True)
    assert sampler.end() == ()


def test_exact_channels_are_not_sampled() -> None:
    policy = Policy(NamedScheme(name="plain"))
    gradients = policy.channel(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD)
    assert gradients.sampler is None
    sampler = MessageSampler(each=1, message_bytes=100, step_bytes=100)
    policy.sample(sampler)
    later = policy.channel(Dimension.TP, Phase.FORWARD, MessageKind.ACT)
    assert gradients.sampler and later.sampler and policy.exact.sampler is None
    sampler.begin(sampled=True)
    x = vector(4)
    for channel in (gradients, later, policy.exact):
        channel.sample("all-reduce", place_of(x), (x,))
    assert [sample.channel for sample in sampler.end()] == ["DP BACKWARD GRAD", "TP FORWARD ACT"]


def test_samples_of_a_device_follow_its_stream() -> None:
    """A sample includes values that the caller's stream writes before the sample is taken, but no later values."""
    accelerator = LazyAccelerator()
    array = OnDevice(np.full(12, 7.7e33, np.float32))
    accelerator.fill(array, vector(12))
    sampler = MessageSampler(each=1, message_bytes=1000, step_bytes=1000)
    channel = sampler.add_channel("DP BACKWARD GRAD")
    sampler.begin(sampled=True)
    place = DevicePlace(Pools(accelerator, aware=False), CALLER)
    x = accelerator.array(array, CALLER)
    channel.count("all-to-all", place, (x[:4], x[8:]), np.dtype(ml_dtypes.bfloat16), (-1, 4))
    accelerator.fill(array, -vector(12))
    (message,) = sampler.end()
    expected = np.concatenate([vector(4), vector(4, 8.0)]).astype(ml_dtypes.bfloat16)
    assert message.values == expected.tobytes() and message.parts[0].shape == (2, 4)
