"""Tests of the loss scale (DeepSpeed's rule) and of message dtypes, including their log output."""

from dataclasses import replace

import numpy as np
import pytest
import small_runs
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.codecs.types import BFLOAT16
from hpcbench.comm.policy import Policy
from hpcbench.contract import step_line
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.step_line import Step
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase
from hpcbench.contract.training import CommPrecision
from hpcbench.train.precision import LossScale, message_dtypes

TRAIN = small_runs.TRAIN.changed(steps=10, warmup_steps=2, micro_batch=2, eval_samples=8)
TABLE = [  # steps, overflow, exponent of the scale and remaining patience after them; window 4, hysteresis 2
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
    """A loss scale that follows DeepSpeed's description, which counts iterations since the last overflow."""

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


def messages_of(precision: str, **chosen: str) -> dict[str, tuple[str, object]]:
    train = TRAIN.changed(precision=precision, comm_precision=CommPrecision(**chosen))
    names, dtypes = train.message_formats, message_dtypes(train)
    assert set(names) == set(dtypes) == {"activations", "gradients", "parameters"}
    return {content: (names[content], dtypes[content]) for content in names}


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp64", None), ("fp32", None), ("bf16", BFLOAT16), ("fp16", np.dtype(np.float16))]
)
def test_messages_have_the_runs_precision_by_default(precision, dtype):
    assert set(messages_of(precision).values()) == {(precision, dtype)}


def test_each_content_of_messages_has_its_own_precision():
    assert messages_of("bf16", gradients="fp32") == {
        "activations": ("bf16", BFLOAT16),
        "gradients": ("fp32", None),
        "parameters": ("bf16", BFLOAT16),
    }
    assert messages_of("fp64", activations="fp32")["activations"] == ("fp32", np.dtype(np.float32))


def test_a_channels_type_follows_from_the_content_of_its_messages():
    half, single = np.dtype(np.float16), np.dtype(np.float32)
    formats = {"activations": half, "gradients": single, "parameters": BFLOAT16}
    policy = Policy(Scheme(algorithm="native"), formats)

    def dtype(dimension: Dimension, phase: Phase, kind: MessageKind) -> object:
        channel = policy.channel(dimension, phase, kind)
        assert channel.algorithm is Algorithm.NATIVE
        return channel.dtype

    for dimension in (Dimension.TP, Dimension.SP, Dimension.PP):
        assert (
            dtype(dimension, Phase.FORWARD, MessageKind.ACT)
            == dtype(dimension, Phase.BACKWARD, MessageKind.GRAD)
            == half
        )
    assert (
        dtype(Dimension.DP, Phase.BACKWARD, MessageKind.GRAD)
        == dtype(Dimension.PP, Phase.STEP, MessageKind.GRAD)
        == single
    )
    assert (
        dtype(Dimension.ZERO, Phase.STEP, MessageKind.PARAM)
        == dtype(Dimension.ZERO, Phase.FORWARD, MessageKind.PARAM)
        == BFLOAT16
    )
    assert dtype(Dimension.DP, Phase.STEP, MessageKind.OPTIM) is None
    assert dtype(Dimension.EXACT, Phase.BACKWARD, MessageKind.GRAD) is policy.exact.dtype is None


def test_the_step_line_has_the_loss_scale_in_fp16_only():
    step = Step(
        step=3,
        steps=8,
        loss=2.5,
        seconds=0.1,
        samples_per_s=40.0,
        model_flops_per_rank=1e9,
        hardware_flops_per_rank=1e9,
        lr=1e-3,
        gradient_norm=1.5,
        message_bytes=100,
        wire_bytes=50,
        skipped=1,
    )
    line = step_line.format_step(step)
    assert "loss-scale" not in line and step_line.parse_step(line, 1).loss_scale is None
    for scale in (1.0, 2.0**12, 2.0**40):
        record = step_line.parse_step(step_line.format_step(replace(step, loss_scale=scale)), 1)
        assert (record.loss_scale, record.skipped, record.wire_bytes) == (scale, 1, 50)
