"""How many ranks a run has and how they lie on nodes; what does not divide is refused before anything runs."""

from collections.abc import Callable
from dataclasses import dataclass

from hpcbench.errors import UserError
from hpcbench.study.schema import Study
from hpcbench.study.yaml12 import FieldPath


@dataclass(frozen=True)
class Capacity:
    """What a site offers, as far as the size of a run and what it can do depend on it."""

    site: str
    ranks_per_node: int | None
    """Usual number of ranks a node; None where a node takes what the layout needs."""
    slots: int
    """Ranks that fit a node without sharing cores or GPUs."""
    device: str = "cpu"
    """What ranks compute on: ``cpu`` or ``cuda``."""


@dataclass(frozen=True)
class Size:
    """The resolved sizes of a run: nodes * ranks_per_node == dp * tp * pp."""

    nodes: int
    ranks_per_node: int
    dp: int
    tp: int
    pp: int

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp


def resolve(study: Study, capacity: Capacity, where: Callable[[FieldPath], str]) -> Size:
    """Sizes of the study's run on this site.

    Parameters
    ----------
    where
        ``file:line`` of a path of the study.

    Raises
    ------
    UserError
        Something does not divide; the message names the field and what would.
    """
    model, layout = study.model, study.layout
    if model.hidden % model.heads:
        raise UserError(
            f"{where(('model', 'heads'))}: model.heads: {model.heads} does not divide model.hidden {model.hidden}: "
            f"use one of {_divisors(model.hidden)}"
        )
    if model.heads % layout.tp:
        raise UserError(
            f"{where(('layout', 'tp'))}: layout.tp: {layout.tp} does not divide model.heads {model.heads}: "
            f"use one of {_divisors(model.heads)}"
        )
    if study.train.sequence_parallel and study.train.seq_len % layout.tp:
        above = -(-study.train.seq_len // layout.tp) * layout.tp
        raise UserError(
            f"{where(('train', 'seq_len'))}: train.seq_len: sequence_parallel splits {study.train.seq_len} into "
            f"layout.tp {layout.tp} equal parts: use {above}, or sequence_parallel: false"
        )
    if model.layers < layout.pp:
        raise UserError(
            f"{where(('layout', 'pp'))}: layout.pp: {layout.pp} stages are more than model.layers {model.layers}: "
            f"use at most {model.layers}"
        )
    _check_parts(study, where)
    size = _place(study, capacity, where)
    train = study.train
    part = train.micro_batch * size.dp
    if train.global_batch % part:
        below = train.global_batch // part * part
        raise UserError(
            f"{where(('train', 'global_batch'))}: train.global_batch: {train.global_batch} is no multiple of "
            f"micro_batch x dp = {train.micro_batch} x {size.dp} = {part}: use "
            f"{f'{below} or ' if below else ''}{below + part}"
        )
    if train.schedule == "interleaved" and train.global_batch // part % layout.pp:
        unit = part * layout.pp
        raise UserError(
            f"{where(('train', 'global_batch'))}: train.global_batch: {train.global_batch} is no multiple of "
            f"micro_batch x dp x pp = {train.micro_batch} x {size.dp} x {layout.pp} = {unit}, as schedule interleaved "
            f"needs: use {-(-train.global_batch // unit) * unit}, or schedule 1f1b"
        )
    return size


def _check_parts(study: Study, where: Callable[[FieldPath], str]) -> None:
    """How the pipeline cuts the model, and whether the schedule goes with it."""
    layers, layout = study.model.layers, study.layout
    interleaved, parts = study.train.schedule == "interleaved", layout.pp * layout.chunks
    if layout.chunks > 1 and layout.pp == 1:
        raise UserError(
            f"{where(('layout', 'chunks'))}: layout.chunks: {layout.chunks} chunks, but layout.pp is 1: one stage has "
            "nothing to interleave: use chunks 1, or more stages"
        )
    if layers < parts:
        raise UserError(
            f"{where(('layout', 'chunks'))}: layout.chunks: pp x chunks = {layout.pp} x {layout.chunks} = {parts} "
            f"parts are more than model.layers {layers}: use at most {layers // layout.pp}"
        )
    if layout.stages and (len(layout.stages) != parts or sum(layout.stages) != layers):
        raise UserError(
            f"{where(('layout', 'stages'))}: layout.stages: {layout.stages} are {len(layout.stages)} parts with "
            f"{sum(layout.stages)} layers: name pp x chunks = {layout.pp} x {layout.chunks} = {parts} parts with "
            f"model.layers {layers} together"
        )
    if interleaved != (layout.chunks > 1):
        raise UserError(
            f"{where(('train', 'schedule'))}: train.schedule: {study.train.schedule} with layout.chunks "
            f"{layout.chunks}: interleaved goes with 2 chunks or more, the others with 1"
        )


def _place(study: Study, capacity: Capacity, where: Callable[[FieldPath], str]) -> Size:
    layout = study.layout
    part = layout.tp * layout.pp
    usual = study.ranks_per_node or capacity.ranks_per_node
    if layout.dp is None:
        nodes = study.nodes or 1
        ranks = nodes * (usual or max(capacity.slots, part))
        if study.nodes is None and usual is None:
            ranks -= ranks % part  # the site's slots are an upper limit, not a number that was asked for
        if ranks < part or ranks % part:
            raise UserError(
                f"{where(('nodes',))}: layout.dp: {nodes} nodes x {usual} ranks = {ranks} ranks are no multiple of "
                f"tp x pp = {layout.tp} x {layout.pp} = {part}: change nodes, layout.tp or layout.pp"
            )
        dp = ranks // part
    else:
        dp = layout.dp
        ranks = dp * part
        nodes = study.nodes or (-(-ranks // usual) if usual else 1)
    product = f"dp x tp x pp = {dp} x {layout.tp} x {layout.pp} = {ranks}"
    if usual is None:
        if ranks % nodes:
            raise UserError(
                f"{where(('nodes',))}: nodes: {nodes} does not divide {product}: change nodes or the layout"
            )
        return Size(nodes, ranks // nodes, dp, layout.tp, layout.pp)
    if study.ranks_per_node is None and study.nodes is None and ranks < usual:
        usual = ranks  # a small run leaves part of its one node idle
    if nodes * usual != ranks:
        path: FieldPath = ("nodes",) if study.nodes else ("layout",)
        remedy = "leave layout.dp out to let it follow from nodes, or change nodes, ranks_per_node or the layout"
        raise UserError(
            f"{where(path)}: layout: {product} ranks, but {nodes} nodes x {usual} ranks a node = {nodes * usual} "
            f"on {capacity.site}: {remedy}"
        )
    return Size(nodes, usual, dp, layout.tp, layout.pp)


def _divisors(number: int) -> str:
    found = [str(d) for d in range(1, min(number, 4096) + 1) if number % d == 0]
    return ", ".join(found if len(found) <= 8 else [*found[:6], "...", found[-1]])
