"""Constraints that a tensor grid imposes on model and training."""

from hpcbench.contract.grid import Grid, make_grid
from hpcbench.contract.section import Misfit
from hpcbench.contract.training import Model, Train


def find_grid_misfit(model: Model, train: Train, mode: str, tp: int, depth: int) -> Misfit | None:
    """Return the first grid constraint that the settings violate, or None if they satisfy all.

    Mode 1d has no constraints. In other modes, shards have equal sizes, and samples and heads are not split. Therefore
    attention needs no messages.
    """
    if depth > 1 and mode != "2.5d":
        return Misfit(("layout", "depth"), f"{depth}, but tensor {mode} has no depth: use 1, or tensor 2.5d")
    try:
        grid = make_grid(mode, tp, depth)
    except ValueError as error:
        return Misfit(("layout", "tp"), f"with tensor {mode}, {error}, or tensor 1d")
    if mode == "1d":
        return None
    if train.sequence_parallel:
        return Misfit(
            ("train", "sequence_parallel"),
            f"tensor {mode} already spreads all activations over the grid: set sequence_parallel to false, or use "
            "tensor 1d",
        )
    if train.optimizer == "onebit-adam":
        return Misfit(
            ("train", "optimizer"),
            f"1-bit Adam computes momenta from whole gradients, but tensor {mode} completes gradients only once per "
            "step: use adamw, or tensor 1d",
        )
    heads = grid.count(grid.inner.columns)
    fine = max(grid.count(product.w[dim]) for product in grid.products.values() for dim in ("K", "N"))
    for field, size, unit, what in (
        (("train", "micro_batch"), train.micro_batch, grid.samples, "pieces of whole samples"),
        (("model", "heads"), model.heads, heads, "pieces of whole heads"),
        (("model", "kv_heads"), model.groups, heads, "pieces of whole heads"),
        (("model", "hidden"), model.hidden, fine, "equal pieces"),
        (("model", "kv_heads"), model.qkv_width, fine, "equal pieces of queries, keys and values"),
        (("model", "mlp_width"), model.middle, fine, "equal pieces"),
        (("model", "vocab"), model.vocab, fine, "equal pieces"),
    ):
        if size % unit:
            above = -(-size // unit) * unit
            return Misfit(
                field,
                f"{size} cannot be divided into {unit} {what}, as tensor {mode} with tp {tp} requires: use {above}, or "
                "another layout.tensor",
            )
    return None


def describe_placement(grid: Grid, ranks_per_node: int) -> str:
    """Describe a grid, and the axes along which ranks share a node if nodes are filled one after another."""
    near: list[str] = []
    far: list[str] = []
    for axis, size in grid.sizes.items():
        lines: dict[int, set[int]] = {}
        for rank in range(grid.ranks):
            lines.setdefault(grid.index(rank, grid.others((axis,))), set()).add(rank // ranks_per_node)
        if size > 1:
            (near if all(len(nodes) == 1 for nodes in lines.values()) else far).append(axis)
    placements = [
        f"lines along {', '.join(axes)} {what}" for axes, what in ((near, "share a node"), (far, "cross nodes")) if axes
    ]
    return f"tensor grid {grid}: " + "; ".join(placements)
