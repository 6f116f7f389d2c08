"""Constraints that mixture-of-experts layers impose on model, training and layout."""

from hpcbench.contract.section import Misfit
from hpcbench.contract.training import Model, Train


def find_expert_misfit(model: Model, train: Train, *, ep: int, tensor: str, cp: int) -> Misfit | None:
    """Return the first expert constraint that the settings violate, or None if they satisfy all.

    Experts support data and pipeline parallelism, 1-D tensor parallelism, all ZeRO stages, offload, gradient
    accumulation and recomputation. Experts that drop no tokens also support context parallelism.
    """
    experts = model.experts
    if experts is None:
        if ep == 1:
            return None
        return Misfit(("layout", "ep"), f"{ep}, but the model has no experts: use 1, or set model.experts")
    if experts.every > model.layers:
        return Misfit(
            ("model", "experts"),
            f"every {experts.every} is more than model.layers {model.layers}, so no layer has experts: lower every",
        )
    if not model.expert_layers:
        return Misfit(
            ("model", "experts"),
            f"with first {experts.first} and every {experts.every}, none of the {model.layers} layers has experts: "
            "lower first",
        )
    if experts.count % ep:
        fits = [str(size) for size in range(1, min(experts.count, 4096) + 1) if experts.count % size == 0]
        return Misfit(
            ("layout", "ep"),
            f"{ep} does not divide model.experts.count {experts.count}: use one of {', '.join(fits[:12])}",
        )
    if tensor != "1d":
        return Misfit(("layout", "tensor"), f"{tensor} does not support experts: use 1d, or a model without experts")
    if cp > 1 and experts.drop != "none":
        return Misfit(
            ("layout", "cp"),
            f"{cp} ranks share the positions of a sample, but model.experts.drop {experts.drop} needs all positions on "
            "one rank: set model.experts.drop to none, or cp to 1",
        )
    if train.sequence_parallel:
        return Misfit(
            ("train", "sequence_parallel"),
            "spreads the positions of a sample over ranks, but a router needs all positions: set sequence_parallel to "
            "false, or use a model without experts",
        )
    if train.optimizer == "onebit-adam":
        return Misfit(
            ("train", "optimizer"),
            "1-bit Adam divides by a variance, but an expert without tokens has no variance: use adamw, or a model "
            "without experts",
        )
    if train.node_copy and ep > 1:
        return Misfit(
            ("train", "node_copy"),
            f"with layout.ep {ep}, the ranks of a node hold different experts and cannot share a copy: set node_copy "
            "to false, or layout.ep to 1",
        )
    return None


def describe_expert_placement(*, ep: int, tp: int, cp: int, ranks: int, ranks_per_node: int) -> str:
    """Describe whether an expert-parallel group fits on one node, if nodes are filled one after another."""
    groups: dict[tuple[int, int], set[int]] = {}
    for rank in range(ranks):
        groups.setdefault((rank // (tp * cp * ep), rank % (tp * cp)), set()).add(rank // ranks_per_node)
    near = all(len(nodes) == 1 for nodes in groups.values())
    return f"experts: the {ep} ranks that hold a layer's experts are on {'one node' if near else 'several nodes'}"
