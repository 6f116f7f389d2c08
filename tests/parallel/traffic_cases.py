"""Random runs whose log must contain their complete traffic by channel."""

from collections.abc import Sequence
from random import Random
from typing import Any

import cases
import expert_cases  # registers kinds of experts
from cases import Case

RANKS = 8
assert "open" in expert_cases.NAMED

CHOICES: dict[str, Sequence[Any]] = {
    "layout.dp": (1, 2, 4),
    "layout.tp+layout.tensor+layout.depth": (
        *((tp, "1d", 1) for tp in (1, 2)),
        *((4, "2d", 1), (8, "2.5d", 2), (8, "3d", 1)),
    ),
    "layout.pp": (1, 2),
    "layout.chunks+train.schedule": ((1, "1f1b"), (1, "gpipe"), (2, "interleaved"), (1, "pipedream")),
    "layout.cp+layout.context": ((1, "ring"), (2, "ring"), (2, "ulysses")),
    "layout.stages": ((), (1, 3)),
    "model.experts+layout.ep": ((None, 1), ("open", 1), ("open", 2), ("roomy", 2)),
    "model.tied": (False, True),
    "train.sparse_gradients": ("never", "auto", "always"),
    "train.zero": (0, 1, 2, 3),
    "train.sequence_parallel": (False, True),
    "train.overlap": (True, False),
    "train.micro_batch": (2, 4),
    "train.clip": (1.0, 0.0),
    "scheme": ("baseline", "naive-mpc", "sign-feedback"),
}
"""Settings that determine the channels of a rank, each with the values from which cases are drawn."""

COMMON: Case = {
    "model": "neox",
    "train.precision": "fp32",
    "train.seq_len": 24,
    "train.steps": 3,
    "train.warmup_steps": 1,
    "train.eval_samples": 16,
}

AS_REPORTED: list[Case] = [
    {"layout.dp": 2, "layout.pp": 2, "train.sparse_gradients": "always", **more}
    for more in ({}, {"layout.tp": 2, "train.zero": 2, "scheme": "naive-mpc"})
]
"""Cases in which stages without the embedding have no channel for its rows."""


def fits(case: Case) -> bool:
    """Return whether the engine accepts the case and the case uses several ranks."""
    try:
        ranks = cases.run_of({**COMMON, **case}).ranks
    except ValueError:
        return False
    return 1 < ranks <= RANKS and cases.is_valid({**COMMON, **case})


def drawn(chance: Random) -> Case:
    """Draw a random valid case."""
    while True:
        case = {name: chance.choice(values) for name, values in CHOICES.items()}
        if fits(case):
            return case


TIERS = {"": 12, "long": 40}
"""Number of cases by worker argument."""


def traffic_cases(tier: str) -> list[Case]:
    """Return reported cases and random cases. Drawing takes seconds, so only the worker calls this function."""
    chance = Random(tier)
    chosen = AS_REPORTED if not tier else []
    return [{**COMMON, **case} for case in (*chosen, *(drawn(chance) for _ in range(TIERS[tier] - len(chosen))))]
