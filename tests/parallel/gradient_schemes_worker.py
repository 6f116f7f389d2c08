"""Worker that trains two replicas with schemes that change gradients, and prints JSON lines.

Usage: gradient_schemes_worker.py {steps}
"""

import json
import sys
from typing import Any

from runs import run_of
from shared_text import corpus
from zero_worker import WORLD

from hpcbench.comm.progress import Progress
from hpcbench.comm.wait import Wait
from hpcbench.contract.layout import Layout
from hpcbench.contract.run import Run
from hpcbench.contract.scheme import NamedScheme, Rule
from hpcbench.parallel.exact import digest
from hpcbench.predict.volume import count_step_bytes
from hpcbench.train.agreement import replicas_agree
from hpcbench.train.trainer import Trainer

STEPS = 4
Bytes = dict[str, list[int]]
"""Message bytes and wire bytes by traffic."""


def run_with(*rules: Rule, **train: Any) -> Run:
    """Return a run of two replicas whose rules are `rules`."""
    run = run_of("neox", Layout(dp=2), precision="fp32")
    settings = {"global_batch": 4, "micro_batch": 1, "steps": STEPS, "bucket_mb": 0.02, **train}
    scheme = NamedScheme(name="tested", algorithm="two-shot", default="none", rules=list(rules))
    return run.changed(scheme=scheme, train=run.train.changed(**settings))


def make_trainer(run: Run) -> Trainer:
    return Trainer(run, WORLD.Dup(), Progress(Wait.GIVE_WAY, background=run.train.overlap), corpus())


def count_bytes(trainer: Trainer) -> Bytes:
    counters = {" ".join(channel.traffic): channel.counters for channel in trainer.policy.channels}
    return {
        name: [counted.message_bytes, counted.wire_bytes]
        for name, counted in counters.items()
        if counted.calls and not name.startswith("EXACT")
    }


def train(run: Run, steps: int = STEPS) -> tuple[Trainer, list[Bytes], list[int]]:
    """Train, and return the trainer, the bytes of each step, and a digest of the weights after each step."""
    trainer, sent, digests = make_trainer(run), [], []
    before = count_bytes(trainer)
    for step in range(steps):
        trainer.step(step)
        after = count_bytes(trainer)
        sent.append(
            {name: [a - b for a, b in zip(after[name], before.get(name, [0, 0]), strict=True)] for name in after}
        )
        before = after
        weights = [values for _, values in trainer.data_parallel.weights()]
        digests.append(digest(weights))
    assert replicas_agree(trainer)
    return trainer, sent, digests


def predict(run: Run, step: int) -> dict[str, int]:
    counted = count_step_bytes(run.model, run.train, run.layout, WORLD.rank, updates=step)
    return {" ".join(key): nbytes for key, nbytes in counted.items() if key[0] != "EXACT"}


def tell(**fields: Any) -> None:
    """Print the results of all ranks on rank 0."""
    for rank, each in enumerate(WORLD.gather(fields) or []):
        print(json.dumps({"rank": rank, **each}), flush=True)


def steps() -> None:
    """Compare rules with steps with rules that always apply."""
    codec = {"dimension": "DP", "codec": "int8:256"}
    gathers = {"dimension": "ZERO", "codec": "int8:64"}
    run = run_with(Rule(**codec, from_step=2, until_step=3), Rule(**gathers, from_step=3))
    trainer, scheduled, digests = train(run)
    _, plain, plain_digests = train(run_with())
    _, encoded, encoded_digests = train(run_with(Rule(**codec), Rule(**gathers)))
    _, _, always = train(run_with(Rule(**codec, from_step=1, until_step=STEPS), Rule(**gathers, from_step=1)))
    rows = [
        [row.dimension, row.codec, row.message_bytes, row.wire_bytes]
        for row in trainer.traffic.report()
        if row.dimension != "EXACT"
    ]
    tell(
        test="steps",
        scheduled=scheduled,
        plain=plain,
        encoded=encoded,
        predicted=[predict(run, step) for step in range(STEPS)],
        first_step=[digests[0] == plain_digests[0], digests[1] == plain_digests[1]],
        always=always == encoded_digests,
        rows=rows,
    )


def forgotten() -> None:
    """Print the residuals after steps with feedback, and after the steps of the rule."""
    signs = {"dimension": "DP", "codec": "sign:1024", "feedback": True}
    run = run_with(Rule(**signs, until_step=2))
    trainer = make_trainer(run)
    sizes = []
    for step in range(3):
        trainer.step(step)
        kept = trainer.data_parallel.residuals().values()
        sizes.append(sum(float(values.abs().sum()) for each in kept for values in each.values()))
    tell(test="forgotten", sizes=sizes)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
