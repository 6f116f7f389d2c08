"""Worker that compares measured effects of codecs with runs that really use the codec in one step.

Arguments: a case, and faults to plant.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from unittest.mock import patch

import numpy as np
import shared_text
from mpi4py import MPI
from parity import Part, Values, assemble, gradients, meet
from planting import list_faults
from runs import in_pairs, run_of

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.experts import Experts
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.traffic import Traffic, list_live_traffic
from hpcbench.errors import UserError
from hpcbench.features.effects.observer.effects import EffectObserver
from hpcbench.features.effects.observer.repeated_step import RepeatedStep
from hpcbench.features.effects.settings import CodecEffects
from hpcbench.parallel.data_parallel import DataParallel
from hpcbench.train.trainer import Trainer

WORLD, CORPUS, QUIET = MPI.COMM_WORLD, shared_text.corpus(), Progress(Wait.GIVE_WAY)
BEFORE = 2
"""Number of steps before the repeated step."""
CODEC = "int4:32"
EFFECTS = CodecEffects(steps=[BEFORE], codecs=[CODEC])
CASES = {
    "tensor": (Layout(dp=2, tp=2), 1, None),
    "pipeline": (Layout(dp=2, pp=2), 3, None),
    "experts": (Layout(dp=2, ep=2, tp=2), 0, Experts(count=2)),
}


def make_run(name: str, *rules: Rule) -> Run:
    layout, zero, experts = CASES[name]
    run = in_pairs(run_of("gpt2", layout, precision="fp32", zero=zero))
    scheme = NamedScheme(name="scheme", algorithm="encoded", default="none", rules=list(rules))
    model = run.model.changed(experts=experts, tied=False)
    return run.changed(model=model, scheme=scheme, train=run.train.changed(steps=BEFORE + 1, codec_effects=EFFECTS))


def masters(trainer: Trainer) -> list[Part]:
    """Return the master weights, in the layout in which `parity.gradients` returns gradients."""
    saved = [piece.gradient for piece in trainer.data_parallel.pieces]
    for piece in trainer.data_parallel.pieces:
        piece.gradient = piece.master
    parts = gradients(trainer)
    for piece, gradient in zip(trainer.data_parallel.pieces, saved, strict=True):
        piece.gradient = gradient
    return [Part(part.shard, part.values.copy()) for part in parts]


class Taken:
    """The last step of a run, as assembled tensors on rank 0."""

    def __init__(self, trainer: Trainer) -> None:
        before = assemble(WORLD, masters(trainer))
        self.loss = trainer.step(BEFORE).loss
        after, gradient = assemble(WORLD, masters(trainer)), assemble(WORLD, gradients(trainer))
        self.gradient, self.update = flat(gradient), flat(after) - flat(before)


def flat(assembled: object) -> Values:
    values = getattr(assembled, "values", {})
    return np.concatenate([np.zeros(0), *(values[name].reshape(-1) for name in sorted(values))])


def train(run: Run) -> Trainer:
    trainer = Trainer(run, WORLD.Dup(), QUIET, CORPUS)
    for step in range(BEFORE):
        trainer.step(step)
    return trainer


@cache
def with_codec(name: str, traffic: Traffic) -> Taken:
    """Take the last step with the codec on this traffic.

    The weights that this step uses are sent at the end of the preceding step.
    """
    dimension, phase, kind = traffic
    step = BEFORE if (phase, kind) == ("STEP", "PARAM") else BEFORE + 1
    rule = {"dimension": dimension, "phase": phase, "kind": kind, "codec": CODEC, "from_step": step, "until_step": step}
    return Taken(train(make_run(name, Rule.model_validate(rule))))


@cache
def without_codec(name: str) -> Taken:
    """Take the last step without a codec."""
    return Taken(train(make_run(name)))


@contextmanager
def swapped_channels() -> Iterator[None]:
    measure = RepeatedStep.measure
    other = {"BACKWARD": "FORWARD", "FORWARD": "BACKWARD"}
    other_kind = {"ACT": "GRAD", "GRAD": "ACT"}

    def swap(self, codecs):
        return measure(
            self,
            {
                (dimension, other.get(phase, phase), other_kind.get(kind, kind))
                if dimension != "DP"
                else (dimension, phase, kind): codec
                for (dimension, phase, kind), codec in codecs.items()
            },
        )

    with patch.object(RepeatedStep, "measure", swap):
        yield


@contextmanager
def weights_not_sent_again() -> Iterator[None]:
    with patch.object(DataParallel, "distribute_weights", lambda self: None):
        yield


@contextmanager
def counted_twice() -> Iterator[None]:
    with patch.object(DataParallel, "counts", lambda self, piece: True):
        yield


FAULTS = list_faults(swapped_channels, weights_not_sent_again, counted_twice)


def compare(name: str, fault: str | None) -> None:
    """Print the measured and the real effect for each kind of traffic, and whether the run is unchanged afterwards."""
    run = make_run(name)
    plain = without_codec(name)
    trainer = train(run)
    calls = trainer.policy.calls()
    observer = EffectObserver(trainer)
    assert observer.end(1) is None and not observer.writes(1) and observer.writes(BEFORE)
    with FAULTS[fault]() if fault else nullcontext():
        event = observer.end(BEFORE)
    assert event is not None and event.effects
    measured = {
        tuple(str(each.traffic).split()): (each.loss, each.update, each.descent)
        for each in event.effects
        if each.codec == CODEC
    }
    assert list(measured) == list_live_traffic(run.setting)
    unchanged = trainer.policy.calls() == calls and trainer.phases.steps == BEFORE
    after = Taken(trainer)
    unchanged = unchanged and after.loss == plain.loss and np.array_equal(after.update, plain.update)
    for traffic, divergence in measured.items():
        real = with_codec(name, traffic)
        if WORLD.rank == 0:
            change = real.update - plain.update
            expected = (
                (real.loss - plain.loss) / plain.loss,
                float(np.linalg.norm(change) / np.linalg.norm(plain.update)),
                float(plain.gradient @ change) / plain.loss,
            )
            row = {"case": name, "fault": fault, "traffic": " ".join(traffic), "unchanged": unchanged}
            print(
                json.dumps({**row, "measured": divergence, "expected": expected}),
                flush=True,
            )


DEPENDENT = {
    "feedback": Rule(dimension="DP", codec="sign:1024", feedback=True),
    "feedback in the first steps": Rule(dimension="DP", codec="sign:1024", feedback=True, until_step=2),
    "differences": Rule(dimension="ZERO", codec="int4:32", differences=True),
}
"""Rules whose messages depend on earlier messages."""


def refuse() -> None:
    """Print why schemes whose messages depend on earlier messages are refused, or None for a scheme that is not."""
    for name, rule in DEPENDENT.items():
        why = None
        try:
            EffectObserver(Trainer(make_run("tensor", rule), WORLD.Dup(), QUIET, CORPUS))
        except UserError as error:
            why = str(error)
        if WORLD.rank == 0:
            print(json.dumps({"dependent": name, "refused": why}), flush=True)


def main(case: str, *faults: str) -> None:
    compare(case, None)
    for fault in faults:
        compare(case, fault)
    refuse()
    meet(WORLD)


if __name__ == "__main__":
    main(*sys.argv[1:])
