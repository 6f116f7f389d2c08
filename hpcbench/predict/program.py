"""Training programs: differences between hpcbench's engine and programs with published runs.

`programs.yaml` contains the properties of each program with sources.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from hpcbench.contract.training import CommPrecision, Train
from hpcbench.errors import UserError
from hpcbench.study import yaml12


@dataclass(frozen=True)
class TrainingProgram:
    """Properties of a training program that the settings of a run do not contain."""

    name: str
    title: str = ""
    """Display name of the program."""
    sources: tuple[str, ...] = ()
    """Sources of the properties."""
    assumed: tuple[str, ...] = ()
    """Names of properties without a source."""
    fused_attention: bool = True
    """Whether attention scores stay on the chip."""
    attention: str = "FA2"
    """Fused kernel: ``FA1``, ``FA2`` or ``FA3``."""
    dropout: bool = False
    """Whether dropout is applied to attention scores, attention outputs and MLP outputs."""
    fused: bool = False
    """Whether bias, activation, dropout and residual run in one kernel."""
    overlaps_tensor: str = "none"
    """Tensor-parallel communication that is overlapped. ``backward``: sums of the backward pass overlap with the
    computation of weight gradients. ``all``: other sums and gathers also overlap with the products to which they
    belong, which are computed in pieces."""
    gathers_ahead: bool = False
    """Whether updated weights of ZeRO-1 are gathered during the next forward pass."""
    sends_once: bool = False
    """Whether each tensor-parallel rank sends only its part to the next stage, where receivers gather the parts within
    the node (scatter-gather of arXiv 2104.04473, section 4.1)."""
    waits_for_messages: bool = False
    """Whether a stage is blocked while it sends to the next stage (Megatron-LM before 2023)."""
    wide_gradients: bool = False
    """Whether matrix products accumulate directly into the weight gradients."""
    gradients: str | None = None
    """Number format of gradients in messages, or None for the setting of the study."""
    layer_buckets: bool = False
    """Whether each layer's gradients form one message. Otherwise ``train.bucket_mb`` of the study applies."""
    nccl: bool = False
    """Whether the collectives use NCCL."""
    slowdown: float | None = None
    """Computing time divided by the computing time from the tables, fitted on published runs of this program; None if
    it was not fitted."""
    states: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Bytes per parameter of ``weights``, ``gradients`` and ``optimizer``. Empty if the engine's rules apply."""
    keeps: str = "fused"
    """Activations that a layer keeps for the backward pass: ``fused`` for fused kernels, sharded by sequence
    parallelism; ``unfused`` as in arXiv 2205.05198; ``input`` if the program recomputes or offloads all other
    activations when memory is insufficient."""
    again: float | None = None
    """Fraction of a layer's products that selective recomputation repeats, or None if it repeats core attention."""
    fp8: bool = False
    """Whether the layers' matrix products use 8-bit operands."""
    shard: int | None = None
    """Number of consecutive replicas over which states are sharded, or None for all replicas."""

    def adapt(self, train: Train, *, layer_elements: float) -> Train:
        """Return a study's settings adapted to this program.

        Parameters
        ----------
        layer_elements
            Number of weights of a layer on a rank.
        """
        changes: dict[str, Any] = {}
        if self.gradients and train.comm_precision.gradients == "auto":
            changes["comm_precision"] = CommPrecision(
                **{**train.comm_precision.model_dump(), "gradients": self.gradients}
            )
        if self.layer_buckets:
            changes["bucket_mb"] = 4 * layer_elements / 1e6
        return train.model_copy(update=changes)


@cache
def read_table() -> dict[str, dict[str, Any]]:
    """Return the content of `programs.yaml`."""
    table: dict[str, dict[str, Any]] = yaml12.read(Path(__file__).with_name("programs.yaml")).data
    return table


def load_program(text: str) -> TrainingProgram:
    """Return a program of `programs.yaml`.

    Parameters
    ----------
    text
        Program name, followed by comma-separated options: ``fp8`` for 8-bit products, and ``shard=N`` if ZeRO states
        are sharded over only N consecutive replicas.

    Raises
    ------
    UserError
        The program or option does not exist.
    """
    name, *options = (part.strip() for part in text.split(","))
    program = _find_program(name)
    for option in options:
        key, _, value = option.partition("=")
        if option == "fp8":
            program = replace(program, fp8=True)
        elif key == "shard" and value.isdecimal() and int(value):
            program = replace(program, shard=int(value))
        else:
            raise UserError(f"--program {text}: unknown option {option!r}: use fp8 or shard=N")
    return replace(program, name=text)


def _find_program(name: str) -> TrainingProgram:
    table = read_table()
    if name not in table:
        near = difflib.get_close_matches(name, table, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"--program {name}: {hint}use one of {', '.join(table)}")
    properties = dict(table[name])
    parent = _find_program(properties.pop("extends")) if "extends" in properties else TrainingProgram(name)
    names = {each.name for each in fields(TrainingProgram)}
    unknown = {*properties, *properties.get("assumed", ())} - names
    assert not unknown, f"programs.yaml: {name}: unknown fields {unknown}"
    lists = {key: tuple(properties.get(key, ())) for key in ("sources", "assumed")}
    return replace(parent, name=name, **{**properties, **lists})


ENGINE = load_program("hpcbench")
