"""Reader for the ``prediction.json`` file of a submission."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.contract.values import get_number, get_text
from hpcbench.files import read_json
from hpcbench.predict.basis import InputBasis
from hpcbench.predict.prediction_file import NAME, SCHEMA


@dataclass(frozen=True)
class StoredStep:
    """Predicted step time of one cell and scheme, in seconds."""

    value: float
    low: float
    high: float
    basis: str
    break_even: float | None = None
    """Bandwidth of a node's network in bytes per second below which the scheme is faster than the baseline.

    The bandwidth is infinite if the scheme is always faster, 0 if it is never faster, and None if it is unknown.
    """


@dataclass(frozen=True)
class StoredNetworkTime:
    """Parts of a predicted step time in seconds, from which the time at other network bandwidths is computed."""

    seconds: float
    waiting: float
    """Waiting for the slowest rank. The time is proportional to the rest of the step."""
    network: float
    """Waiting for the node's network. The time is inversely proportional to the network's bandwidth."""

    def compute_seconds(self, factor: float) -> float:
        """Return the step time at `factor` times the bandwidth of the machine."""
        local = self.seconds - self.waiting - self.network
        return (local + self.network / factor) * self.seconds / (self.seconds - self.waiting)


def _read(root: Path) -> tuple[dict[str, Any], list[Any]]:
    """Return a submission's prediction file and the runs in it. Files of other versions count as missing."""
    raw = read_json(root / NAME) or {}
    if raw.get("schema") != SCHEMA:
        return {}, []
    runs = raw.get("predictions")
    return raw, runs if isinstance(runs, list) else []


def read_network_times(root: Path) -> tuple[float | None, dict[tuple[str, str], StoredNetworkTime]]:
    """Return the node's network bandwidth in bytes per second, and network times keyed by (cell, scheme).

    The bandwidth is None if it is assumed or unknown.
    """
    raw, runs = _read(root)
    bandwidth = get_number(raw, "node_bytes_per_s")
    if not bandwidth or get_text(raw, "links", "between") in (None, InputBasis.ASSUMED.value):
        return None, {}
    times = {}
    for run in runs:
        cell, scheme = get_text(run, "cell"), get_text(run, "scheme")
        paths = (("step_seconds", "value"), ("parts", "waiting"), ("network_seconds",))
        seconds, waiting, network = (get_number(run, *path) for path in paths)
        if cell is None or scheme is None or seconds is None or waiting is None or network is None:
            continue
        if math.isfinite(seconds) and min(waiting, network) >= 0 and waiting + network <= seconds and waiting < seconds:
            times[cell, scheme] = StoredNetworkTime(seconds, waiting, network)
    return bandwidth, times


def read_predictions(root: Path) -> dict[tuple[str, str], StoredStep]:
    """Return a submission's predictions, keyed by (cell, scheme). The result is empty if the file is unusable."""
    predictions = {}
    for run in _read(root)[1]:
        cell, scheme, basis = (get_text(run, *path) for path in (("cell",), ("scheme",), ("step_seconds", "basis")))
        figures = [get_number(run, "step_seconds", name) for name in ("value", "low", "high")]
        if cell is None or scheme is None or None in figures:
            continue
        value, low, high = (float(figure or 0.0) for figure in figures)
        if math.isfinite(value) and value > 0:
            break_even = get_number(run, "against_baseline", "bytes_per_s")
            predictions[cell, scheme] = StoredStep(value, low, high, basis or "", break_even)
    return predictions
