"""Rules of asynchronous training: pipelines without a flush, and parameter servers."""

from hpcbench.contract.layout import Layout, Partition
from hpcbench.contract.section import Misfit
from hpcbench.contract.training import UNFLUSHED, Model, Train


def find_stream_misfit(model: Model, train: Train, cut: Partition) -> Misfit | None:
    """Return why the pipeline cannot run without a flush, or None if it can, or if the schedule has flushes."""
    if train.schedule not in UNFLUSHED:
        if train.vertical_sync:
            return Misfit(
                ("train", "vertical_sync"),
                f"{train.schedule} keeps one version of the weights: leave vertical_sync out, or use schedule "
                "pipedream",
            )
        return None
    if train.vertical_sync and train.schedule != "pipedream":
        return Misfit(
            ("train", "vertical_sync"),
            f"every stage of {train.schedule} uses the same version already: leave vertical_sync out",
        )
    why = f"{train.schedule} does not synchronize the stages at the end of a step, but "
    if cut.pp == 1:
        return Misfit(
            ("layout", "pp"), f"{train.schedule} needs 2 stages or more: raise layout.pp, or use schedule 1f1b"
        )
    if cut.tensor != "1d":
        return Misfit(("layout", "tensor"), f"{train.schedule} does not support tensor grids: use tensor 1d")
    if cut.cp > 1:
        return Misfit(("layout", "cp"), f"{train.schedule} does not support context parallelism: set layout.cp to 1")
    if model.experts is not None:
        return Misfit(("model", "experts"), f"{train.schedule} does not support experts: use a model without experts")
    if train.clip:
        return Misfit(("train", "clip"), why + "clipping needs the gradient norm of the whole model: set clip to 0")
    if train.precision == "fp16":
        return Misfit(("train", "precision"), why + "all ranks must agree on the loss scale of fp16: use bf16 or fp32")
    if train.zero == 3:
        return Misfit(
            ("train", "zero"),
            f"{train.schedule} keeps several versions of the weights, but ZeRO stage 3 gathers only one: set zero to "
            "0, 1 or 2",
        )
    if train.offload:
        return Misfit(
            ("train", "offload"),
            f"{train.schedule} keeps its versions of the weights on the device: set offload to false",
        )
    if model.tied:
        return Misfit(
            ("model", "tied"),
            why + "the gradient of a tied weight is summed over the first and the last stage: set tied to false",
        )
    return None


def find_server_misfit(model: Model, train: Train, layout: Layout) -> Misfit | None:
    """Return why the settings do not support a parameter server, or None if they do, or if no server is used."""
    if train.slow_factor > 1 and (layout.pp > 1 or train.slow_rank >= layout.ranks):
        return Misfit(
            ("train", "slow_factor"),
            f"cannot slow down rank {train.slow_rank} of {layout.ranks} in {layout.pp} stages: use layout.pp 1 and "
            "an existing rank, or slow_factor 1",
        )
    if train.staleness and train.sync != "ssp":
        return Misfit(
            ("train", "staleness"), f"sync {train.sync} has no bound on staleness: leave staleness out, or use sync ssp"
        )
    if train.sync == "all-reduce":
        return None
    if field := next((name for name in ("tp", "cp", "pp", "ep") if getattr(layout, name) > 1), None):
        return Misfit(
            ("layout", field),
            f"sync {train.sync} supports only replicas of one rank: set layout.{field} to 1, or use sync all-reduce",
        )
    if model.experts is not None:
        return Misfit(("model", "experts"), f"sync {train.sync} does not support experts: use a model without experts")
    if layout.dp == 1:
        return Misfit(
            ("layout", "dp"), f"sync {train.sync} needs 2 workers or more: raise layout.dp, or use sync all-reduce"
        )
    if train.zero != 1:
        return Misfit(
            ("train", "zero"),
            f"a parameter server needs the shards of ZeRO stage 1, but zero is {train.zero}: set zero to 1",
        )
    if train.clip:
        return Misfit(
            ("train", "clip"),
            "clipping needs the norm of the whole gradient, but each shard is updated separately: set clip to 0",
        )
    if train.precision == "fp16":
        return Misfit(
            ("train", "precision"), "all ranks must agree on the loss scale of fp16 in each step: use bf16 or fp32"
        )
    if train.offload:
        return Misfit(
            ("train", "offload"), "the shards keep their optimizer states on the device: set offload to false"
        )
    if not train.overlap:
        return Misfit(("train", "overlap"), "a shard must answer while its rank computes: set overlap to true")
    if train.trace is not None:
        return Misfit(("train", "trace"), f"sync {train.sync} has no steps that include all ranks: leave trace out")
    if train.keep_messages is not None:
        return Misfit(
            ("train", "keep_messages"),
            f"sync {train.sync} has no steps that include all ranks: leave keep_messages out",
        )
    return None
