"""Stored cases that cover every pair of values, their references, and the commands that run them.

`python tests/parallel/pair_cases.py` prints the tables of docs/reference/pairs.md.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from labels import MOST_RANKS, Labels, completed, is_near, run_of
from pair_search import stored, values
from schema_axes import AXES, NO_AXIS, OUTSIDE

from hpcbench.contract.run import Run
from hpcbench.contract.training import UNFLUSHED

PARTS = {"few": 8, "rest": 8, "wide": MOST_RANKS}
"""Number of MPI ranks that run the cases of each part."""


@dataclass(frozen=True)
class Pairs:
    """A case with a label for every axis."""

    labels: Labels

    @cached_property
    def name(self) -> str:
        """Labels that differ from the defaults, as text."""
        plain = completed({})
        labels = [f"{axis}={label}" for axis, label in self.labels.items() if label != plain[axis]]
        return ",".join(labels).replace(" ", "-") or "plain"

    @cached_property
    def exact(self) -> bool:
        """Whether the results equal the results of one process, up to rounding in fp64."""
        return not any(is_near(*value) for value in self.labels.items())

    @cached_property
    def run(self) -> Run:
        """Run that the labels describe."""
        return _accepted(self.labels)

    @cached_property
    def reference(self) -> Run:
        """Single-process run with the same samples.

        For a pipeline without a flush, the reference is the smallest such pipeline. In a pipeline without a flush,
        weights depend on the stage and on the position of a micro-batch in its replica.
        """
        run = self.run
        labels = {axis: label for axis, label in self.labels.items() if AXES[axis].mathematics} | {"dp": "1"}
        del labels["experts"]  # part of the model
        micro_batch = run.train.global_batch
        if run.train.schedule in UNFLUSHED:
            labels |= {axis: self.labels[axis] for axis in ("schedule", "stages", "dp")}
            micro_batch = run.train.micro_batch
        if run.train.optimizer == "onebit-adam":
            labels["zero"] = self.labels["zero"]
        alone = _accepted(labels)
        samples = {"global_batch": run.train.global_batch, "eval_samples": run.train.eval_samples}
        return alone.changed(model=run.model, train=alone.train.changed(micro_batch=micro_batch, **samples))


def _accepted(labels: Labels) -> Run:
    run = run_of(labels)
    assert isinstance(run, Run), f"{run}: write the cases again with `python tests/parallel/pair_search.py`"
    return run


@cache
def cases() -> list[Pairs]:
    """Return the stored cases."""
    return [Pairs(labels) for labels in stored()]


@cache
def parts() -> dict[str, list[Pairs]]:
    """Return the cases of each part.

    `make test` runs a part that covers every value. The other parts are grouped by ranks.
    """
    missing = {value for case in cases() for value in case.labels.items()}
    few: list[Pairs] = []
    while missing:
        best = max(cases(), key=lambda case: len(missing & case.labels.items()) / (1 + case.run.ranks))
        missing -= best.labels.items()
        few.append(best)
    others = [case for case in cases() if case not in few]
    remaining = [case for case in others if case.run.ranks <= PARTS["rest"]]
    return {"few": few, "rest": remaining, "wide": [case for case in others if case not in remaining]}


def tables() -> Iterator[str]:
    """Yield the tables of docs/reference/pairs.md: the cases of each command, the axes, and the other fields."""
    rows: list[tuple[Any, ...]] = []
    for part, command in (("few", "make test"), ("rest", "make test-long"), ("wide", "make test-long")):
        exact = [case.exact for case in parts()[part]]
        rows.append((f"`{command}`", PARTS[part], sum(exact), len(exact) - sum(exact)))
    yield _table(("command", "ranks at most", "cases within the tolerances below", "cases that are only near"), rows)
    names = {axis: [label for name, label in values() if name == axis] for axis in AXES}
    yield _table(("axis", "values"), ((axis, ", ".join(names[axis])) for axis in AXES))
    reasons: dict[str, list[str]] = {}
    for field, why in NO_AXIS.items():
        reasons.setdefault(why, []).append(f"`{field}`")
    rows = [(", ".join(fields), why) for why, fields in reasons.items()]
    rows += [(f"`{field}`: {', '.join(labels)}", why) for field, (labels, why) in OUTSIDE.items()]
    yield _table(("fields and values outside", "why"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    print("\n".join(tables()))
