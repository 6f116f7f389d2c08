"""The traffic of a run: dimensions, phases, kinds, and their possible combinations."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from hpcbench.contract.grid import GRID_AXES, carries_weights
from hpcbench.contract.layout import Layout
from hpcbench.contract.training import Train


class Dimension(str, Enum):
    """Parallel dimension that a message belongs to.

    EXACT is for scalars, statistics and flags, which are never encoded.
    """

    DP = "DP"
    ZERO = "ZERO"
    TP = "TP"
    SP = "SP"
    CP = "CP"
    PP = "PP"
    EP = "EP"
    EXACT = "EXACT"


class Phase(str, Enum):
    """Phase of the training step in which the message is sent."""

    FORWARD = "FORWARD"
    BACKWARD = "BACKWARD"
    STEP = "STEP"


class MessageKind(str, Enum):
    """Content of the message."""

    GRAD = "GRAD"
    ACT = "ACT"
    PARAM = "PARAM"
    OPTIM = "OPTIM"


class Algorithm(str, Enum):
    """The algorithm of a collective, and the library that implements it."""

    AUTO = "auto"
    """The algorithm with the shortest expected time.

    The fastest algorithm may be the MPI library's own collective, without a codec.
    """
    ENCODED = "encoded"
    """The fastest algorithm that runs the codec."""
    NATIVE = "native"
    """The MPI library's own collective, without a codec."""
    TWO_SHOT = "two-shot"
    """Encoded all-to-all, sum in at least fp32, and encoded all-gather."""
    HIERARCHICAL = "hierarchical"
    """Two-shot between nodes. Values within a node are not encoded."""
    HIERARCHICAL_ENCODED = "hierarchical-encoded"
    """Two-shot between nodes. Values are also encoded within nodes.

    Bytes from other nodes are forwarded unchanged.
    """
    RING = "ring"
    """A ring in which each hop encodes the partial sums again. This algorithm is provided for comparison only."""
    DOUBLING = "doubling"
    """Recursive doubling: whole vectors are exchanged at distances 1, 2, 4, ..., with few messages."""
    HOMOMORPHIC = "homomorphic"
    """8-bit integers with a scale that all ranks share, summed as integers by the MPI library."""


Traffic = tuple[str, ...]
"""Dimension, phase and kind of a channel, as members of the enumerations above or as strings.

On a tensor grid, the tuple also contains the axis.
"""


class TrafficSettings(NamedTuple):
    """The settings that determine the traffic of a run."""

    layout: Layout
    train: Train
    tied: bool = False
    """Whether the embedding and the output layer share their weights."""


_SENT_IF: dict[Traffic, Callable[[Layout, Train, bool], bool]] = {
    ("DP", "BACKWARD", "GRAD"): lambda layout, train, tied: layout.replicas > 1,
    ("DP", "STEP", "OPTIM"): lambda layout, train, tied: layout.replicas > 1 and train.optimizer == "onebit-adam",
    ("ZERO", "STEP", "PARAM"): lambda layout, train, tied: layout.replicas > 1 and train.zero in (1, 2),
    ("ZERO", "FORWARD", "PARAM"): lambda layout, train, tied: layout.replicas > 1 and train.zero == 3,
    ("ZERO", "BACKWARD", "PARAM"): lambda layout, train, tied: layout.replicas > 1 and train.zero == 3,
    ("TP", "FORWARD", "ACT"): lambda layout, train, tied: _in_one_dimension(layout) and not train.sequence_parallel,
    ("TP", "BACKWARD", "GRAD"): lambda layout, train, tied: _in_one_dimension(layout) and not train.sequence_parallel,
    ("SP", "FORWARD", "ACT"): lambda layout, train, tied: layout.tp > 1 and train.sequence_parallel,
    ("SP", "BACKWARD", "GRAD"): lambda layout, train, tied: layout.tp > 1 and train.sequence_parallel,
    ("CP", "FORWARD", "ACT"): lambda layout, train, tied: layout.cp > 1,
    ("CP", "BACKWARD", "GRAD"): lambda layout, train, tied: layout.cp > 1,
    ("EP", "FORWARD", "ACT"): lambda layout, train, tied: layout.ep > 1,
    ("EP", "BACKWARD", "GRAD"): lambda layout, train, tied: layout.ep > 1,
    ("PP", "FORWARD", "ACT"): lambda layout, train, tied: layout.pp > 1,
    ("PP", "BACKWARD", "GRAD"): lambda layout, train, tied: layout.pp > 1,
    ("PP", "STEP", "GRAD"): lambda layout, train, tied: layout.pp > 1 and tied,
}
"""Traffic that a rule may name, except tensor-grid traffic, and the condition under which a run sends it."""


def _in_one_dimension(layout: Layout) -> bool:
    return layout.tp > 1 and layout.tensor == "1d"


def _on_axis(axis: str) -> list[Traffic]:
    """Return the traffic over an axis of a tensor grid."""
    forward = "PARAM" if carries_weights(axis) else "ACT"
    gradients = ("TP", "BACKWARD", "GRAD", axis)
    return [gradients] if axis == "e" else [("TP", "FORWARD", forward, axis), gradients]


def list_live_traffic(setting: TrafficSettings) -> list[Traffic]:
    """Return the traffic of a run."""
    grid = setting.layout.grid
    on_grid = [] if grid.mode == "1d" else [t for axis in grid.axes if grid.sizes[axis] > 1 for t in _on_axis(axis)]
    return [traffic for traffic, sent in _SENT_IF.items() if sent(*setting)] + on_grid


def list_possible_traffic(optimizer: str | None = None) -> list[Traffic]:
    """Return the traffic of all layouts with the given optimizer. None means any optimizer."""
    plain = [traffic for traffic in _SENT_IF if traffic[2] != "OPTIM" or optimizer in (None, "onebit-adam")]
    return plain + [traffic for axis in GRID_AXES for traffic in _on_axis(axis)]


def is_all_reduced(traffic: Traffic) -> bool:
    """Return whether a run may all-reduce these messages over a group.

    On a tensor grid, only axis e has all-reduces.
    """
    dimension, phase, _, *axis = traffic
    return (dimension in ("DP", "TP") and axis in ([], ["e"])) or (dimension, phase) == ("PP", "STEP")


def find_content(traffic: Traffic) -> str | None:
    """Return the content of the messages as a field of `CommPrecision`, or None if their number format is fixed.

    The format is fixed for exact traffic, and for the momenta of 1-bit Adam, which are encoded from fp32.
    """
    dimension, phase, kind, *axis = traffic
    if dimension == "EXACT" or kind == "OPTIM":
        return None
    if kind == "PARAM":
        return "parameters"
    of_weights = dimension == "DP" or (dimension, phase) == ("PP", "STEP") or any(map(carries_weights, axis))
    return "gradients" if of_weights else "activations"
