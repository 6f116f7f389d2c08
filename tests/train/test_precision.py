"""The loss scale by DeepSpeed's rule, in what messages travel, and what the log says of both."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.codecs.types import BFLOAT16
from hpcbench.collect.lines import parse
from hpcbench.comm.channel import Algorithm, Dimension, Kind, Phase
from hpcbench.comm.policy import Policy
from hpcbench.train.log import Step
from hpcbench.train.precision import LossScale, message_dtype, message_precision

TABLE = [  # steps, overflow, exponent of the scale and patience left after them; window 4, hysteresis 2
    (1, True, 12, 1),
    (1, True, 11, 1),
    (1, True, 10, 1),
    (3, False, 10, 1),
    (1, False, 11, 2),
    (3, False, 11, 2),
    (1, True, 11, 1),
    (3, False, 11, 1),
    (1, False, 12, 2),
    (4, False, 13, 2),
    (1, True, 13, 1),
    (3, False, 13, 1),
    (1, True, 12, 1),
    (4, False, 13, 2),
]


class DeepSpeedRule:
    """Counts iterations from the last overflow, as DeepSpeed describes its dynamic loss scaler."""

    def __init__(self, scale: float, window: int, hysteresis: int, smallest: float) -> None:
        self.scale, self.window, self.delay, self.smallest = scale, window, hysteresis, smallest
        self.patience, self.iteration, self.last_overflow = hysteresis, 0, -1

    def update(self, overflow: bool) -> None:
        if overflow:
            if self.patience == 1:
                self.scale = max(self.scale / 2, self.smallest)
            else:
                self.patience -= 1
            self.last_overflow = self.iteration
        elif (self.iteration - self.last_overflow) % self.window == 0:
            self.patience = self.delay
            self.scale *= 2
        self.iteration += 1


def test_loss_scale_follows_the_table():
    scale = LossScale(2.0**12, window=4)
    for steps, overflow, exponent, patience in TABLE:
        for _ in range(steps):
            scale.update(overflow=overflow)
        assert (scale.value, scale._patience) == (2.0**exponent, patience)


@given(st.lists(st.booleans(), max_size=200), st.integers(1, 7))
def test_loss_scale_is_deepspeeds_on_any_trace(trace, window):
    ours, theirs = LossScale(2.0**4, window=window), DeepSpeedRule(2.0**4, window, 2, 1.0)
    for overflow in trace:
        ours.update(overflow=overflow)
        theirs.update(overflow)
        assert (ours.value, ours._patience) == (theirs.scale, theirs.patience)


@pytest.mark.parametrize(
    ("precision", "comm", "name", "dtype"),
    [
        ("fp32", "auto", "fp32", None),
        ("bf16", "auto", "fp32", None),
        ("fp64", "auto", "fp64", None),
        ("fp16", "fp32", "fp32", None),
        ("fp64", "fp32", "fp32", np.dtype(np.float32)),
        ("fp32", "fp16", "fp16", np.dtype(np.float16)),
        ("bf16", "bf16", "bf16", BFLOAT16),
    ],
)
def test_messages_are_rounded_only_where_that_is_asked_for(precision, comm, name, dtype):
    assert message_precision(precision, comm) == name
    assert message_dtype(precision, comm) == dtype


@pytest.mark.parametrize("algorithm", [Algorithm.NATIVE, Algorithm.AUTO])
def test_what_no_library_sums_is_not_left_to_it_and_exact_traffic_is_never_rounded(algorithm):
    policy = Policy(algorithm=algorithm, dtype=BFLOAT16)
    channel = policy.channel(Dimension.TP, Phase.FORWARD, Kind.ACT)
    assert (channel.algorithm, channel.dtype) == (Algorithm.ENCODED, BFLOAT16)
    assert (policy.exact.algorithm, policy.exact.dtype) == (Algorithm.NATIVE, None)


def test_the_step_line_has_the_loss_scale_in_fp16_only():
    step = Step(3, 8, 2.5, 0.1, 40.0, 1e9, 1e9, 1e-3, 1.5, 100, 50, 1)
    assert "loss-scale" not in step.line() and parse(step.line(), 1).loss_scale is None
    for scale in (1.0, 2.0**12, 2.0**40):
        line = Step(**{**vars(step), "loss_scale": scale}).line()
        record = parse(line, 1)
        assert (record.loss_scale, record.skipped, record.wire_bytes) == (scale, 1, 50)
