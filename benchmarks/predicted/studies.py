"""The ten studies that are predicted and measured.

All studies use eight ranks on four hosts, with different layouts and rates.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Shape(NamedTuple):
    """Number of hosts, and of ranks per host."""

    hosts: int
    ranks_a_host: int

    @property
    def ranks(self) -> int:
        """All studies."""
        return self.hosts * self.ranks_a_host


SHAPE = Shape(4, 2)


@dataclass(frozen=True)
class Study:
    """Schemes with the same layout, on links with the same rate."""

    name: str
    rate: str
    settings: tuple[str, ...]
    """``KEY=VALUE`` settings that override predict_measured.yaml."""


def _study(rate: str, dp: int, tp: int, pp: int, *settings: str) -> Study:
    cut = (f"layout.dp={dp}", f"layout.tp={tp}", f"layout.pp={pp}", *settings)
    sizes = [f"dp {dp}", *([f"tp {tp}"] if tp > 1 else []), *([f"pp {pp}"] if pp > 1 else [])]
    more = [setting.partition(".")[2].replace("=", " ") for setting in settings if "." in setting]
    return Study(", ".join([" x ".join(sizes), *more, rate]), rate, cut)


CALIBRATION = _study("200mbit", 8, 1, 1, "train.zero=0", "train.overlap=false")
"""Study of the earlier run. No other study uses the layout or rate of this study.

Communication does not overlap with computation in this study, so the time of passes is pure computation.
"""
STUDIES = (
    _study("100mbit", 8, 1, 1),
    _study("1gbit", 8, 1, 1, "train.zero=3"),
    _study("500mbit", 4, 2, 1, "train.zero=2"),
    _study("50mbit", 4, 1, 2),
    _study("300mbit", 2, 2, 2),
    _study("100mbit", 2, 1, 4),
    _study("1gbit", 2, 4, 1),
    _study("500mbit", 2, 2, 2, "train.recompute=full", "train.sequence_parallel=true"),
    _study("1gbit", 2, 4, 1, "layout.tensor=2d"),
    _study("50mbit", 4, 2, 1),
)
TINY_SHAPE = Shape(2, 1)
_TWO = ("nodes=2", "ranks_per_node=1")
TINY_CALIBRATION = _study("200mbit", 2, 1, 1, "train.zero=0", "train.overlap=false", *_TWO)
TINY_STUDIES = (_study("100mbit", 2, 1, 1, *_TWO),)
"""Study of a quick test."""
