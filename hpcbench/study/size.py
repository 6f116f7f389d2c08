"""Number and placement of a run's ranks. Sizes that do not divide evenly are refused before submission."""

from dataclasses import dataclass

from hpcbench.contract.layout import Layout, balance_stages, find_batch_misfit, find_model_misfit
from hpcbench.contract.problems import FieldPath, Locator
from hpcbench.contract.synchrony import find_server_misfit, find_stream_misfit
from hpcbench.errors import UserError
from hpcbench.study.schema import AnyStudy, ProgramStudy, Study


@dataclass(frozen=True)
class Capacity:
    """Site properties that limit the size and device of a run."""

    site: str
    ranks_per_node: int | None
    """Default number of ranks per node. If None, the layout determines the number."""
    slots: int
    """Number of ranks that fit on a node without sharing cores or GPUs."""
    device: str = "cpu"
    """Device of the ranks: ``cpu`` or ``cuda``."""
    most_nodes: tuple[int, str] | None = None
    """Maximum number of nodes per job and a sentence that states its source, or None if the maximum is unknown."""


@dataclass(frozen=True)
class Size:
    """Resolved sizes of a run, with nodes * ranks_per_node == layout.ranks."""

    nodes: int
    ranks_per_node: int
    layout: Layout


def resolve(study: AnyStudy, capacity: Capacity, where: Locator) -> Size:
    """Resolve the sizes of a run on a site.

    Raises
    ------
    UserError
        A size does not divide evenly. The message contains the field and a valid size.
    """
    if study.nodes is not None and capacity.most_nodes is not None and study.nodes > capacity.most_nodes[0]:
        most, source = capacity.most_nodes
        raise UserError(f"{where(('nodes',))}: nodes: {study.nodes}: {source}: use at most {most}")
    if isinstance(study, ProgramStudy):
        nodes = study.nodes or 1
        per_node = study.ranks_per_node or capacity.ranks_per_node or capacity.slots
        return Size(nodes, per_node, Layout(dp=nodes * per_node))  # the program arranges its ranks itself
    sections = study.model, study.train, study.layout
    if misfit := find_model_misfit(*sections) or find_stream_misfit(*sections):
        raise UserError(f"{where(misfit.field)}: {misfit}")
    size = _place(study, capacity, where)
    if study.train.sync != "all-reduce" and capacity.device != "cpu":
        raise UserError(
            f"{where(('train', 'sync'))}: train.sync: {study.train.sync} is available only on CPUs, but the device of "
            f"{capacity.site} is {capacity.device}: use sync all-reduce"
        )
    if misfit := find_server_misfit(study.model, study.train, size.layout) or find_batch_misfit(
        study.train, size.layout
    ):
        raise UserError(f"{where(misfit.field)}: {misfit}{_explain_dp(study, size, capacity)}")
    return size


def _explain_dp(study: Study, size: Size, capacity: Capacity) -> str:
    """Explain a value of dp that is not set in the study."""
    if study.layout.dp is not None or study.ranks_per_node is not None:
        return ""
    return (
        f" (dp = {size.layout.dp} follows from {size.nodes} x {size.ranks_per_node} ranks, with the default ranks per "
        f"node of {capacity.site}: set ranks_per_node to change it)"
    )


def _place(study: Study, capacity: Capacity, where: Locator) -> Size:
    layout = study.layout
    part = layout.cp * layout.tp * layout.pp
    names = ("cp", "tp", "pp") if layout.cp > 1 else ("tp", "pp")
    axes, sizes = " x ".join(names), " x ".join(str(getattr(layout, name)) for name in names)
    remedies = ", ".join(f"layout.{name}" for name in names[:-1])
    usual = study.ranks_per_node or capacity.ranks_per_node
    if layout.dp is None:
        nodes = study.nodes or 1
        ranks = nodes * (usual or max(capacity.slots, part))
        if study.nodes is None and usual is None:
            ranks -= ranks % part  # the site's slots are an upper limit, not a request
        if ranks < part or ranks % part:
            raise UserError(
                f"{where(('nodes',))}: layout.dp: {nodes} nodes x {usual} ranks = {ranks} ranks, not a multiple of "
                f"{axes} = {sizes} = {part}: change nodes, {remedies} or layout.pp"
            )
        dp = ranks // part
    else:
        dp = layout.dp
        ranks = dp * part
        nodes = study.nodes or (-(-ranks // usual) if usual else 1)
    stages = balance_stages(study.model, study.train, layout.parts) if layout.automatic else layout.stages
    resolved = Layout(**{**dict(layout), "dp": dp, "stages": stages})
    product = f"dp x {axes} = {dp} x {sizes} = {ranks}"
    if usual is None:
        if ranks % nodes:
            raise UserError(
                f"{where(('nodes',))}: nodes: {nodes} does not divide {product}: change nodes or the layout"
            )
        return Size(nodes, ranks // nodes, resolved)
    if study.ranks_per_node is None and study.nodes is None and ranks < usual:
        usual = ranks  # a small run leaves part of its only node idle
    if nodes * usual != ranks:
        path: FieldPath = ("nodes",) if study.nodes else ("layout",)
        remedy = "leave layout.dp out to let it follow from nodes, or change nodes, ranks_per_node or the layout"
        raise UserError(
            f"{where(path)}: layout: {product} ranks, but {nodes} nodes x {usual} ranks per node = {nodes * usual} "
            f"on {capacity.site}: {remedy}"
        )
    return Size(nodes, usual, resolved)
