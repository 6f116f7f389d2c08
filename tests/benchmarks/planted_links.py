"""Synthetic measurements on slow links."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

BYTES = {"baseline": 0.0, "identity": 4e6, "naive-bf16": 2e6, "naive-int8": 1e6, "zhybrid-16-8": 1.6e6}
"""Bytes between hosts per step. The MPI library does not report the bytes that it sends."""


def run(scheme: str, rate: str | None, repeat: int, speed: float, batch: int | None = None) -> dict[str, Any]:
    """A planted run."""
    traffic = {"network_bytes": BYTES[scheme], "exposed_s": 0.05, "hidden_s": 0.01}
    return {
        "rate": rate,
        "repeat": repeat,
        "cell": {} if batch is None else {"train.global_batch": batch},
        "scheme": scheme,
        "samples_per_s": speed,
        "seconds": 8 / speed,
        "valid": 3.0 + 0.001 * repeat,
        "traffic": {"DP": traffic},
    }


def document(rates: Sequence[str | None], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the run in the file's format."""
    return {
        "provenance": {"command": "python x", "revision": "abc of 2026-01-01", "machine": "two cores"},
        "part": "own",
        "title": "planted",
        "asked": {"settings": [], "shares": [50.0], "rates": None},
        "run": {
            "model": {"name": "gpt-tiny"},
            "train": {
                "precision": "fp32",
                "comm_precision": dict.fromkeys(("activations", "gradients", "parameters"), "auto"),
                "zero": 1,
                "steps": 20,
                "warmup_steps": 4,
                "global_batch": 8,
                "seq_len": 128,
            },
            "layout": {"dp": 2},
            "ranks": 2,
            "oversubscribe": False,
        },
        "schemes": list(dict.fromkeys(run["scheme"] for run in runs)),
        "rates": [rate for rate in rates if rate],
        "runs": runs,
    }


def draw(speeds: Mapping[str | None, Mapping[str, float]], *, repeats: int = 8, noise: float = 0.01) -> dict[str, Any]:
    """Return runs whose speeds scatter around the given speeds.

    All runs of a repeat have the same random error in common.
    """
    dice = random.Random(1)
    runs = []
    for repeat in range(1, repeats + 1):
        for rate, schemes in speeds.items():
            common = dice.gauss(0, 0.03)
            for scheme, speed in schemes.items():
                runs.append(run(scheme, rate, repeat, 50 * speed * (1 + common) * (1 + dice.gauss(0, noise))))
    return document(list(speeds), runs)
