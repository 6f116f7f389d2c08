"""Rules of training that does not wait: pipelines without a flush, and parameter servers."""

from hpcbench.contract.layout import Layout, Partition
from hpcbench.contract.section import Misfit
from hpcbench.contract.training import UNFLUSHED, Model, Train


def find_stream_misfit(model: Model, train: Train, cut: Partition) -> Misfit | None:
    """Return why the pipeline cannot go on without a flush; None if it can, or if it is flushed."""
    if train.schedule not in UNFLUSHED:
        if train.vertical_sync:
            return Misfit(
                ("train", "vertical_sync"),
                f"{train.schedule} has one version of the weights: leave it out, or use schedule pipedream",
            )
        return None
    if train.vertical_sync and train.schedule != "pipedream":
        return Misfit(
            ("train", "vertical_sync"), f"every stage of {train.schedule} uses the same version already: leave it out"
        )
    why = f"{train.schedule} lets no stage wait for all others at the end of a step, and "
    if cut.pp == 1:
        return Misfit(("layout", "pp"), f"{train.schedule} needs 2 stages or more: raise it, or use schedule 1f1b")
    if cut.tensor != "1d":
        return Misfit(("layout", "tensor"), f"{train.schedule} has not been built for tensor grids: use tensor 1d")
    if cut.cp > 1:
        return Misfit(("layout", "cp"), f"{train.schedule} has not been built for shared positions: set it to 1")
    if model.experts is not None:
        return Misfit(("model", "experts"), f"{train.schedule} has not been built for experts: use a model without")
    if train.clip:
        return Misfit(("train", "clip"), why + "clipping needs the whole model's gradient norm: set it to 0")
    if train.precision == "fp16":
        return Misfit(("train", "precision"), why + "the loss scale of fp16 is decided by all: use bf16 or fp32")
    if train.zero == 3:
        return Misfit(
            ("train", "zero"), f"{train.schedule} keeps several versions, and stage 3 gathers one: set it to 0, 1 or 2"
        )
    if train.offload:
        return Misfit(("train", "offload"), f"{train.schedule} keeps its versions on the device: set it to false")
    if model.tied:
        return Misfit(("model", "tied"), why + "a tied weight is summed over the first and the last: set it to false")
    return None


def find_server_misfit(model: Model, train: Train, layout: Layout) -> Misfit | None:
    """Return why there can be no parameter server; None if there can, or if none is asked for."""
    if train.slow_factor > 1 and (layout.pp > 1 or train.slow_rank >= layout.ranks):
        return Misfit(
            ("train", "slow_factor"),
            f"rank {train.slow_rank} of {layout.ranks} in {layout.pp} stages: only a replica without a pipeline can be "
            "made slower: use layout.pp 1 and a rank that there is, or slow_factor 1",
        )
    if train.staleness and train.sync != "ssp":
        return Misfit(
            ("train", "staleness"), f"sync {train.sync} has no bound to choose: leave it out, or use sync ssp"
        )
    if train.sync == "all-reduce":
        return None
    if field := next((name for name in ("tp", "cp", "pp", "ep") if getattr(layout, name) > 1), None):
        return Misfit(
            ("layout", field),
            f"sync {train.sync} has been built for whole replicas: set it to 1, or use sync all-reduce",
        )
    if model.experts is not None:
        return Misfit(("model", "experts"), f"sync {train.sync} has not been built for experts: use a model without")
    if layout.dp == 1:
        return Misfit(("layout", "dp"), f"sync {train.sync} needs 2 workers or more: raise it, or use sync all-reduce")
    if train.zero != 1:
        return Misfit(
            ("train", "zero"),
            f"the shards of a parameter server are the pieces of stage 1, and zero is {train.zero}: set it to 1",
        )
    if train.clip:
        return Misfit(
            ("train", "clip"), "clipping needs the whole gradient's norm, and each shard updates alone: set it to 0"
        )
    if train.precision == "fp16":
        return Misfit(
            ("train", "precision"), "the loss scale of fp16 is decided by all ranks in each step: use bf16 or fp32"
        )
    if train.offload:
        return Misfit(("train", "offload"), "the shards keep their states on the device: set it to false")
    if not train.overlap:
        return Misfit(("train", "overlap"), "a shard answers while its rank computes: set it to true")
    if train.trace is not None:
        return Misfit(("train", "trace"), f"sync {train.sync} has no steps that all ranks share: leave it out")
    if train.keep_messages is not None:
        return Misfit(("train", "keep_messages"), f"sync {train.sync} has no steps that all ranks share: leave it out")
    return None
