"""Runs in which every pair of values that a study may have occurs: candidates from the schema, checked as a study is.

`python tests/parallel/pair_cases.py` searches for them and writes pairs.json, which takes a minute.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from math import prod
from pathlib import Path
from random import Random
from typing import Any

from schema_axes import AXES, NO_AXIS, Setting

from hpcbench.contract.run import Run
from hpcbench.contract.training import UNFLUSHED
from hpcbench.errors import UserError
from hpcbench.study.expand import expand
from hpcbench.study.load import Loaded, put, validate
from hpcbench.study.run import run_file
from hpcbench.study.size import Capacity
from hpcbench.study.yaml12 import Document

Labels = dict[str, str]
"""The label of a value for some axes. The others have their first value."""
Pair = tuple[tuple[str, str], tuple[str, str]]

LIST = Path(__file__).with_name("pairs.json")
MOST_RANKS = 16
"""Two replicas of a tensor grid of eight ranks."""
SMALL = 8
CAPACITY = Capacity("local", None, MOST_RANKS)
FIRST: Labels = {axis: next(iter(values.values)) for axis, values in AXES.items()}
LOSSY = AXES["scheme"].rounding
BASE: dict[str, Any] = {
    "study": "pairs",
    "model": {"hidden": 32, "heads": 4, "rotary_fraction": 0.5},
    "train": {"steps": 2, "warmup_steps": 1, "seq_len": 8, "seed": 7, "lr": 1e-3},
    "layout": {},
    "scheme": "tested",
    "schemes": {"tested": {}},
    "baseline": {"scheme": "tested"},
    "repeats": 1,
}


def completed(labels: Labels) -> Labels:
    """The labels with a value for every axis: the first one, or one that the given labels need."""
    lossy = labels.get("scheme", "") in LOSSY
    needed = {"precision": "fp32"} if lossy else {}
    if lossy and labels.get("precision") == "fp64":
        needed |= dict.fromkeys(("activations", "gradients", "parameters"), "fp32")
    chosen = {**FIRST, **needed, **labels}
    if "dp" not in labels and ranks_of(chosen) > MOST_RANKS:
        chosen["dp"] = "1"
    return chosen


def setting_of(labels: Labels) -> Setting:
    """The values of all fields that the axes set."""
    return {name: value for axis, label in labels.items() for name, value in AXES[axis].values[label].items()}


def ranks_of(labels: Labels) -> int:
    """Ranks of a case with a value for every axis."""
    setting = setting_of(labels)
    return prod(setting.get(f"layout.{name}", 1) for name in ("dp", "tp", "cp", "pp"))


def study_of(labels: Labels) -> dict[str, Any]:
    """A study of one run, with the fields that follow from the others."""
    setting = setting_of(completed(labels))
    pp, dp = setting["layout.pp"], setting["layout.dp"]
    parts = pp * setting.get("layout.chunks", 1)
    stages = setting.get("layout.stages")
    layers = max(parts, 2) + (stages is not None and parts > 1)
    if stages == "uneven":
        setting["layout.stages"] = [1] * (parts - 1) + [layers - parts + 1]
    rows = {"2d": 2, "2.5d": 4, "3d": 4}.get(setting["layout.tensor"], 1) if setting["layout.tp"] > 2 else 1
    rows = 2 if labels.get("tensor") == "2.5d tp2" else rows
    micro_batch = setting["train.micro_batch"] * rows
    micro_batches = 2 * pp if setting["train.schedule"] == "interleaved" else pp + 1
    uneven = rows == 1 and setting.get("layout.ep", 1) == 1
    setting |= {
        "model.layers": layers,
        "train.micro_batch": micro_batch,
        "train.global_batch": micro_batches * micro_batch * dp,
        "train.eval_samples": dp * rows + uneven,
    }
    data: dict[str, Any] = {name: dict(part) if isinstance(part, dict) else part for name, part in BASE.items()}
    for name, value in setting.items():
        section, _, field = name.partition(".")
        put(data, ("schemes", "tested", field) if section == "schemes" else tuple(name.split(".")), value, name)
    return data


@cache
def _run_of(key: tuple[tuple[str, str], ...]) -> Run | str:
    data = study_of(dict(key))
    document = Document("study.yaml", b"", data)
    try:
        (run,) = expand(Loaded(validate(data, document.where), document, []), CAPACITY)
        content = run_file(run, site="local", threads=1, oversubscribe=True, device="cpu", base=Path("/"))
    except UserError as error:
        return str(error)
    return Run.model_validate(content)


def run_of(labels: Labels) -> Run | str:
    """The run that a submission would write, or why the study is refused."""
    return _run_of(tuple(sorted(labels.items())))


def ways(labels: Labels) -> int | None:
    """Ranks of the run with these values; None if the study is refused or needs more ranks than there are."""
    if ranks_of(completed(labels)) > MOST_RANKS or isinstance(run_of(labels), str):
        return None
    return ranks_of(completed(labels))


def rounds(axis: str, label: str) -> bool:
    return label in AXES[axis].rounding


def accepted() -> dict[Pair, int]:
    """Every pair of values that a study may have, with all else at its first value, and the ranks that it needs."""
    values = [(axis, label) for axis in AXES for label in AXES[axis].values if ways({axis: label})]
    found = {}
    for one, other in combinations(values, 2):
        if one[0] != other[0] and (ranks := fewest(dict((one, other)))):
            found[one, other] = ranks
    return found


def fewest(labels: Labels) -> int | None:
    """Ranks of the smallest run with these values; None if there is none."""
    sizes = (ways({"dp": dp} | labels) for dp in ("1", FIRST["dp"]))
    return min(filter(None, sizes), default=None)


def pairs_of(case: Labels) -> Iterator[Pair]:
    """The pairs of values that a case with a value for every axis has."""
    ordered = [(axis, case[axis]) for axis in AXES]
    return combinations(ordered, 2)


def search(pairs: dict[Pair, int], seed: int) -> list[Labels]:
    """Cases that cover the pairs, by a greedy search: the pairs that need most ranks first (AETG).

    A case grows from an uncovered pair, axis by axis, each time with the value that covers most new pairs.
    """
    chance = Random(seed)
    cases = []
    for exact in (True, False):
        missing = {pair for pair in pairs if exact != any(rounds(*value) for value in pair)}
        while missing:
            start = max(missing, key=lambda pair: (pairs[pair], pair))
            case = grown(dict(start), pairs, missing, most=max(pairs[start], 4), exact=exact, chance=chance)
            cases.append(case)
            missing -= set(pairs_of(case))
    return cases


def grown(
    case: Labels, pairs: dict[Pair, int], missing: set[Pair], *, most: int, exact: bool, chance: Random
) -> Labels:
    """A case with a value for every axis."""
    place = {axis: number for number, axis in enumerate(AXES)}

    def pair(one: tuple[str, str], other: tuple[str, str]) -> Pair:
        return (one, other) if place[one[0]] < place[other[0]] else (other, one)

    left = [axis for axis in AXES if axis not in case]
    while left:
        offers = []
        for axis in left:
            for label in AXES[axis].values:
                if exact and rounds(axis, label):
                    continue
                with_case = [pair((axis, label), known) for known in case.items()]
                if all(each in pairs for each in with_case):
                    offers.append((sum(each in missing for each in with_case), chance.random(), axis, label))
        for _, _, axis, label in sorted(offers, reverse=True):
            ranks = ways({**case, axis: label}) if axis == "dp" else fewest({**case, axis: label})
            if ranks and ranks <= most:
                case = {**case, axis: label}
                left.remove(axis)
                break
        else:
            raise ValueError(f"no value of {left} fits {case}")
    return case


@dataclass(frozen=True)
class Pairs:
    """A case, and what it is compared with."""

    labels: Labels

    @property
    def name(self) -> str:
        """The labels of the axes that have not their first value."""
        words = [f"{axis}={label}" for axis, label in self.labels.items() if label != FIRST[axis]]
        return ",".join(words).replace(" ", "_") or "plain"

    @property
    def exact(self) -> bool:
        """Whether the run gives the numbers of one process but for rounding of fp64."""
        return not any(rounds(*value) for value in self.labels.items())

    @cached_property
    def run(self) -> Run:
        """The run of the case."""
        run = run_of(self.labels)
        assert isinstance(run, Run), run
        return run

    @cached_property
    def reference(self) -> Run:
        """The run in one process, of the same samples; for a pipeline without flush the smallest such pipeline."""
        kept = {axis: label for axis, label in self.labels.items() if AXES[axis].mathematics}
        run, size = self.run, 1
        if run.train.schedule in UNFLUSHED:
            kept["schedule"], size = self.labels["schedule"], run.layout.pp
        if run.train.optimizer == "onebit-adam":
            kept["zero"] = self.labels["zero"]
        alone = run_of({**kept, "dp": "1"})
        assert isinstance(alone, Run), alone
        micro_batch = run.train.micro_batch * run.layout.dp if size > 1 else run.train.global_batch
        train = alone.train.changed(
            global_batch=run.train.global_batch, micro_batch=micro_batch, eval_samples=run.train.eval_samples
        )
        return alone.changed(model=run.model, train=train)


@cache
def cases() -> list[Pairs]:
    """The stored cases."""
    return [Pairs(completed(labels)) for labels in json.loads(LIST.read_text(encoding="utf-8"))]


@cache
def few() -> list[Pairs]:
    """Small cases in which every value occurs that has a case: what `make test` has."""
    missing = {value for case in cases() for value in case.labels.items()}
    chosen = []
    while missing:
        best = max(cases(), key=lambda case: len(missing & case.labels.items()) / (1 + case.run.ranks))
        missing -= best.labels.items()
        chosen.append(best)
    return chosen


RANKS = {"few": SMALL, "rest": SMALL, "wide": MOST_RANKS}
"""Ranks of the world in which the cases of a part run."""


def part_of(part: str) -> list[Pairs]:
    """The cases of a part: those of `make test`, or the others by their number of ranks."""
    others = [case for case in cases() if case not in few()]
    return {
        "few": few(),
        "rest": [case for case in others if case.run.ranks <= SMALL],
        "wide": [case for case in others if case.run.ranks > SMALL],
    }[part]


def store(found: Sequence[Labels]) -> None:
    """Write the cases, one a line, without the values that are the first of their axes."""
    lines = [
        json.dumps({axis: case[axis] for axis in AXES if completed(without(case, axis)) != case}) for case in found
    ]
    LIST.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def without(case: Labels, axis: str) -> Labels:
    return {name: label for name, label in case.items() if name != axis}


def tables() -> Iterator[str]:
    """The tables of docs/explanation/parity.md: the axes, the fields without one, the number of cases."""
    yield _table(
        ("setting", "values"),
        ((axis, ", ".join(label for label in AXES[axis].values if ways({axis: label}))) for axis in AXES),
    )
    reasons: dict[str, list[str]] = {}
    for field, why in NO_AXIS.items():
        reasons.setdefault(why, []).append(f"`{field}`")
    yield _table(("fields outside", "why"), ((", ".join(fields), why) for why, fields in reasons.items()))
    rows = []
    for part, tier in (("few", "make test"), ("rest", "make test-long"), ("wide", "make test-long")):
        exact = [case.exact for case in part_of(part)]
        rows.append((f"`{tier}`", RANKS[part], sum(exact), len(exact) - sum(exact)))
    yield _table(("command", "ranks at most", "cases within rounding of fp64", "cases that are only near"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["tables"]:
        store(search(accepted(), seed=1))
    print("\n".join(tables()))
