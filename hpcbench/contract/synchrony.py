"""Rules of training that does not wait: pipelines without a flush."""

from hpcbench.contract.layout import Partition
from hpcbench.contract.section import Misfit
from hpcbench.contract.training import UNFLUSHED, Model, Train


def stream_misfit(model: Model, train: Train, cut: Partition) -> Misfit | None:
    """Why the pipeline cannot go on without a flush; None if it can, or if it is flushed."""
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
