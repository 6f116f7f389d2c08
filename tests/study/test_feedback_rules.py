"""Tests that error feedback is either correct or refused by name, with every codec, number format and channel."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from hpcbench.batch.plan_jobs import idle_notes
from hpcbench.codecs import spec
from hpcbench.codecs.types import BFLOAT16
from hpcbench.comm.channel import Channel, resolve_channel
from hpcbench.comm.policy import Policy
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.section import Precision
from hpcbench.contract.traffic import Algorithm, Dimension, MessageKind, Phase
from hpcbench.contract.training import MessageFormat
from hpcbench.errors import UserError
from hpcbench.study.expand import ExpandedRun, expand
from hpcbench.study.load import load_study
from hpcbench.study.size import Capacity
from hpcbench.train.precision import message_dtypes

EXAMPLES = {"zfp": "zfp:16", "topk": "topk:0.1", "threshold": "threshold:0.001", "rowsparse": "rowsparse:4"}
CODECS = [EXAMPLES.get(family, family) for family in spec.FAMILIES]
ALGORITHMS = get_args(Scheme.model_fields["algorithm"].annotation)
LOSSLESS = {name for name in CODECS if spec.parse(name).lossless}
GRADIENTS = Dimension.DP, Phase.BACKWARD, MessageKind.GRAD
MOMENTA = Dimension.DP, Phase.STEP, MessageKind.OPTIM
N = 512


def run_of(directory: Path, scheme: dict[str, Any], **train: Any) -> ExpandedRun:
    """Return the run of a study's only scheme."""
    study = {
        "study": "s",
        "model": "gpt-tiny",
        "train": {"steps": 20, "global_batch": 64, "zero": 0, "clip": 0.0, **train},
        "layout": {"dp": 2},
        "schemes": {"mine": scheme},
        "scheme": "mine",
        "baseline": {"scheme": "mine"},
    }
    path = directory / "s.yaml"
    path.write_text(json.dumps(study), encoding="utf-8")
    return expand(load_study(path), Capacity("local", None, 8))[0]


def channels_of(run: ExpandedRun) -> Iterator[Channel]:
    """Yield the run's channels that support feedback: gradients and, with 1-bit Adam, momenta."""
    policy = Policy(run.scheme, message_dtypes(run.study.train))  # type: ignore[union-attr]
    yield policy.channel(*GRADIENTS)
    yield policy.channel(*MOMENTA)


@pytest.mark.parametrize("optimizer", ["adamw", "onebit-adam"])
@pytest.mark.parametrize("precision", get_args(Precision))
def test_each_pair_of_codec_and_format_is_refused_or_works(tmp_path: Path, precision: str, optimizer: str) -> None:
    for codec, gradients in product(CODECS, get_args(MessageFormat)):
        scheme = {"optimizer": optimizer, "rules": [{"dimension": "DP", "codec": codec, "feedback": True}]}
        settings = {"precision": precision, "comm_precision": {"gradients": gradients}}
        fp64 = precision == "fp64" and (gradients == "auto" or optimizer == "onebit-adam")
        if fp64 and codec not in LOSSLESS:
            with pytest.raises(UserError, match=r"train\.precision: fp64, which rule 1 .* lossless codec"):
                run_of(tmp_path, scheme, **settings)
            continue
        wide = np.dtype(np.float64 if precision == "fp64" else np.float32)
        for channel in list(channels_of(run_of(tmp_path, scheme, **settings)))[: 1 if optimizer == "adamw" else 2]:
            travels = channel.travels_as(wide)
            short = travels in (np.float16, BFLOAT16)
            assert channel.feedback is (short or codec not in LOSSLESS), (codec, settings, channel.traffic)
            x, residual = np.linspace(-1, 1, N).astype(travels), np.zeros(N, np.float32) if channel.feedback else None
            wire = np.zeros(channel.codec.wire_bytes(N, travels), np.uint8)
            assert channel.codec.encode(x, wire, residual=residual) <= wire.size
            if residual is None:
                assert channel.codec.error_bound(x) == 0.0, "the errors are kept"


def test_algorithms_without_a_place_for_errors_refuse_feedback_or_leave_the_sum_to_another(tmp_path: Path) -> None:
    for algorithm in ALGORITHMS:
        rules = [{"dimension": "DP", "codec": "none", "feedback": True}]
        if algorithm == "native":
            with pytest.raises(
                UserError, match=r"schemes\.mine: rule 1 .*: algorithm native keeps no errors for feedback: use alg"
            ):
                run_of(tmp_path, {"algorithm": algorithm, "rules": rules})
        else:
            run = run_of(tmp_path, {"algorithm": algorithm, "rules": rules}, precision="bf16")
            assert all(channel.algorithm is not Algorithm.NATIVE for channel in channels_of(run))


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({}, "which rule 1 (DP sign:1024) of scheme mine cannot encode: set train.comm_precision to fp32"),
        ({"comm_precision": "fp32"}, "cannot encode: train with another precision, or use a lossless codec"),
    ],
)
def test_the_remedy_for_momenta_is_one_that_helps(tmp_path: Path, settings: Any, remedy: str) -> None:
    """comm_precision has no effect on momenta."""
    scheme = {"optimizer": "onebit-adam", "rules": [{"dimension": "DP", "codec": "sign", "feedback": True}]}
    with pytest.raises(UserError) as caught:
        run_of(tmp_path, scheme, precision="fp64", **settings)
    assert remedy in str(caught.value)


def test_errors_of_another_packages_codec_are_not_kept_in_fp64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "plugin", lambda family: object() if family == "theirs" else None)
    scheme = {"rules": [{"dimension": "DP", "codec": "theirs", "feedback": True}]}
    with pytest.raises(UserError, match=r"theirs.* cannot correct, because errors are kept in fp32: set train\.comm"):
        run_of(tmp_path, scheme, precision="fp64")
    assert run_of(tmp_path, scheme, precision="fp64", comm_precision="fp32")
    assert run_of(tmp_path, scheme)


def test_a_note_says_that_there_is_no_error_to_feed_back(tmp_path: Path) -> None:
    scheme = {"rules": [{"dimension": "DP", "codec": "mpc", "feedback": True}]}
    (note,) = idle_notes([run_of(tmp_path, scheme)])
    assert note == (
        "scheme mine: rule 1 (DP mpc) has no error to feed back: the codec is lossless, and messages are not rounded "
        "to 16 bits"
    )
    assert idle_notes([run_of(tmp_path, scheme, precision="bf16")]) == []


def test_a_channel_without_errors_has_no_feedback_whoever_makes_it() -> None:
    """The carrier of PyTorch programs builds channels without a policy."""
    for codec, dtype in product(CODECS, (None, np.dtype("f4"), np.dtype("f8"), np.dtype("f2"), BFLOAT16)):
        scheme = Scheme(rules=[Rule(dimension="DP", codec=codec, feedback=True)])
        channel = resolve_channel(scheme, GRADIENTS, dtype)
        assert channel.feedback is (codec not in LOSSLESS or dtype in (np.dtype("f2"), BFLOAT16))
