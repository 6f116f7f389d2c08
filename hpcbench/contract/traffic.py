"""Which traffic a run has: its dimensions, phases and kinds, and which of their combinations are sent."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from hpcbench.contract.grid import GRID_AXES, carries_weights
from hpcbench.contract.layout import Layout
from hpcbench.contract.training import Train


class Dimension(str, Enum):
    """Parallel dimension that a message belongs to; EXACT is for scalars, statistics and flags, never encoded."""

    DP = "DP"
    ZERO = "ZERO"
    TP = "TP"
    SP = "SP"
    CP = "CP"
    PP = "PP"
    EP = "EP"
    EXACT = "EXACT"


class Phase(str, Enum):
    """When in a training step the message is sent."""

    FORWARD = "FORWARD"
    BACKWARD = "BACKWARD"
    STEP = "STEP"


class Kind(str, Enum):
    """What the message holds."""

    GRAD = "GRAD"
    ACT = "ACT"
    PARAM = "PARAM"
    OPTIM = "OPTIM"


class Algorithm(str, Enum):
    """Who moves the bytes of a collective, and how."""

    AUTO = "auto"
    """Whatever is expected to be the fastest, the MPI library's own collective without a codec included."""
    ENCODED = "encoded"
    """The fastest of those that run the codec."""
    NATIVE = "native"
    """The MPI library's own collective, no codec."""
    TWO_SHOT = "two-shot"
    """Encoded all-to-all, sum in at least fp32, encoded all-gather."""
    HIERARCHICAL = "hierarchical"
    """Two-shot between nodes; within them the values as they are."""
    HIERARCHICAL_ENCODED = "hierarchical-encoded"
    """The same, encoded within the nodes too; what came from other nodes is passed on as it came."""
    RING = "ring"
    """Partial sums encoded anew at each hop; to be compared with."""
    DOUBLING = "doubling"
    """Whole vectors at distances 1, 2, 4 ...: few messages."""
    HOMOMORPHIC = "homomorphic"
    """8-bit integers with a scale that all ranks share, summed as integers by the MPI library."""


Traffic = tuple[str, ...]
"""Dimension, phase and kind of a channel, the enumerations above or their words; on a tensor grid the axis behind."""


class Setting(NamedTuple):
    """What decides which traffic there is."""

    layout: Layout
    train: Train
    tied: bool = False
    """Embedding and head share a weight."""


_SENT_IF: dict[Traffic, Callable[[Layout, Train, bool], bool]] = {
    ("DP", "BACKWARD", "GRAD"): lambda layout, train, tied: layout.dp > 1,
    ("DP", "STEP", "OPTIM"): lambda layout, train, tied: layout.dp > 1 and train.optimizer == "onebit-adam",
    ("ZERO", "STEP", "PARAM"): lambda layout, train, tied: layout.dp > 1 and train.zero in (1, 2),
    ("ZERO", "FORWARD", "PARAM"): lambda layout, train, tied: layout.dp > 1 and train.zero == 3,
    ("ZERO", "BACKWARD", "PARAM"): lambda layout, train, tied: layout.dp > 1 and train.zero == 3,
    ("TP", "FORWARD", "ACT"): lambda layout, train, tied: _in_one_dimension(layout) and not train.sequence_parallel,
    ("TP", "BACKWARD", "GRAD"): lambda layout, train, tied: _in_one_dimension(layout) and not train.sequence_parallel,
    ("SP", "FORWARD", "ACT"): lambda layout, train, tied: layout.tp > 1 and train.sequence_parallel,
    ("SP", "BACKWARD", "GRAD"): lambda layout, train, tied: layout.tp > 1 and train.sequence_parallel,
    ("PP", "FORWARD", "ACT"): lambda layout, train, tied: layout.pp > 1,
    ("PP", "BACKWARD", "GRAD"): lambda layout, train, tied: layout.pp > 1,
    ("PP", "STEP", "GRAD"): lambda layout, train, tied: layout.pp > 1 and tied,
}
"""All traffic that a rule may speak of but that of tensor grids, and whether a run has it."""


def _in_one_dimension(layout: Layout) -> bool:
    return layout.tp > 1 and layout.tensor == "1d"


def _on_axis(axis: str) -> list[Traffic]:
    """What travels over an axis of a tensor grid."""
    forward = "PARAM" if carries_weights(axis) else "ACT"
    gradients = ("TP", "BACKWARD", "GRAD", axis)
    return [gradients] if axis == "e" else [("TP", "FORWARD", forward, axis), gradients]


def live(setting: Setting) -> list[Traffic]:
    """The traffic that a run has."""
    grid = setting.layout.grid
    on_grid = [] if grid.mode == "1d" else [t for axis in grid.axes if grid.sizes[axis] > 1 for t in _on_axis(axis)]
    return [traffic for traffic, sent in _SENT_IF.items() if sent(*setting)] + on_grid


def possible(optimizer: str | None = None) -> list[Traffic]:
    """The traffic that runs have in one layout or another, with one optimizer or any."""
    plain = [traffic for traffic in _SENT_IF if traffic[2] != "OPTIM" or optimizer in (None, "onebit-adam")]
    return plain + [traffic for axis in GRID_AXES for traffic in _on_axis(axis)]


def content_of(traffic: Traffic) -> str | None:
    """What the messages hold, a field of `CommPrecision`; None of what always travels as it is.

    That is exact traffic, and the momenta of 1-bit Adam, which its codec takes in fp32.
    """
    dimension, phase, kind, *axis = traffic
    if dimension == "EXACT" or kind == "OPTIM":
        return None
    if kind == "PARAM":
        return "parameters"
    of_weights = dimension == "DP" or (dimension, phase) == ("PP", "STEP") or any(map(carries_weights, axis))
    return "gradients" if of_weights else "activations"
