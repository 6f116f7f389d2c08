"""Training programs: the differences between hpcbench's engine and programs with published runs.

`programs.yaml` holds the properties of each program with their sources.
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
    """Properties of a training program that the settings of a run do not contain.

    Attributes
    ----------
    title
        Name of the program in texts.
    sources
        Where the properties were read.
    fused_attention
        Whether attention scores stay on the chip.
    attention
        Fused kernel: ``FA1``, ``FA2`` or ``FA3``.
    dropout
        Whether dropout follows attention, its scores and the MLP.
    fused
        Whether bias, activation, dropout and residual are one kernel.
    overlaps_tensor
        Tensor-parallel communication that is overlapped. ``backward``: sums of the backward pass, while gradients of
        weights are computed. ``all``: also other sums and gathers, with their own products, which are made in pieces.
    gathers_ahead
        Whether updated weights of ZeRO-1 are gathered during the next forward pass.
    sends_once
        Whether each tensor-parallel rank sends only its part to the next stage, and receivers gather the parts within
        the node (scatter-gather of arXiv 2104.04473, section 4.1).
    waits_for_messages
        Whether a stage is blocked during a message to the next one (Megatron-LM before 2023).
    wide_gradients
        Whether products add weight gradients to their sums.
    gradients
        Number format of gradients in messages; None for the setting of the study.
    layer_buckets
        Whether the gradients of one layer are one message; otherwise ``train.bucket_mb`` of the study applies.
    nccl
        Whether NCCL carries out the collectives.
    slowdown
        Computing time over that of the tables, fitted on published runs.
    states
        Bytes of ``weights``, ``gradients`` and ``optimizer`` for each parameter; empty for the rules of the engine.
    keeps
        Activations that a layer keeps for the backward pass: ``fused`` for those of fused kernels, sharded by sequence
        parallelism; ``unfused`` for those of arXiv 2205.05198; ``input`` if the program recomputes or offloads all
        others where they do not fit.
    again
        Fraction of a layer's products that selective recomputation repeats; None if it repeats the core of attention.
    fp8
        Whether the products of layers multiply numbers of 8 bits.
    shard
        Number of neighboring replicas that share the states; None for all.
    """

    name: str
    title: str = ""
    sources: tuple[str, ...] = ()
    fused_attention: bool = True
    attention: str = "FA2"
    dropout: bool = False
    fused: bool = False
    overlaps_tensor: str = "none"
    gathers_ahead: bool = False
    sends_once: bool = False
    waits_for_messages: bool = False
    wide_gradients: bool = False
    gradients: str | None = None
    layer_buckets: bool = False
    nccl: bool = False
    slowdown: float = 1.0
    states: Mapping[str, float] = field(default_factory=dict, hash=False)
    keeps: str = "fused"
    again: float | None = None
    fp8: bool = False
    shard: int | None = None

    def adapt(self, train: Train, *, layer_elements: float) -> Train:
        """Return the settings of a study as this program carries them out.

        Parameters
        ----------
        layer_elements
            Number of a layer's weights on a rank.
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


def list_programs() -> list[str]:
    """Return the names of all programs."""
    return list(read_table())


def load_program(text: str) -> TrainingProgram:
    """Return a program of `programs.yaml`.

    Parameters
    ----------
    text
        Name of the program, and options after commas: ``fp8`` for products in 8 bits, and ``shard=N`` if only N
        neighboring replicas share the states that the ZeRO stage distributes.

    Raises
    ------
    UserError
        There is no such program or option.
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
            raise UserError(f"--program {text}: {option!r} is not an option: use fp8 or shard=N")
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
    assert properties.keys() <= names, f"programs.yaml: {name}: unknown fields {properties.keys() - names}"
    return replace(parent, name=name, **{**properties, "sources": tuple(properties["sources"])})


ENGINE = load_program("hpcbench")
