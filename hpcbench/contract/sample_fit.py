"""Rules for schemes that send how a sample's activations have changed since the sample was last processed."""

from hpcbench.contract.layout import Layout
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.training import UNFLUSHED, Data, Train


def find_sample_misfit(scheme: Scheme, train: Train, data: Data, layout: Layout) -> str | None:
    """Return why both stages cannot keep the activations of samples in a run, or None if they can."""
    if not any(rule.sample_changes for rule in scheme.rules):
        return None
    what, batch = "sample_changes sends changes since a sample was last seen", train.global_batch
    if data.samples is None:
        return f"{what}, but training samples never recur: set data.samples, or leave sample_changes out"
    if data.samples % batch:
        return (
            f"{what} by the same replica, but data.samples {data.samples} is not a multiple of train.global_batch "
            f"{batch}: set data.samples to {-(-data.samples // batch) * batch}"
        )
    if data.samples >= train.steps * batch:
        return (
            f"{what}, but no sample recurs in {train.steps} steps of {batch} samples: set data.samples below "
            f"{train.steps * batch}, or leave sample_changes out"
        )
    if train.schedule in UNFLUSHED:
        return f"{what}, but schedule {train.schedule} does not end its steps: use schedule 1f1b"
    if layout.tensor != "1d":
        return f"{what}, but layout.tensor {layout.tensor} splits samples over ranks: use layout.tensor 1d"
    return None
