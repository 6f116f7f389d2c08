"""Rules for an embedding whose gradient travels by the rows that were touched."""

from hpcbench.contract.section import Misfit
from hpcbench.contract.training import UNFLUSHED, Model, Train


def find_row_obstacle(model: Model, train: Train, tensor: str) -> Misfit | None:
    """Return why the embedding's gradient travels whole, whatever `train.sparse_gradients` says; None if it need not.

    Parameters
    ----------
    model, train
        The run's model and settings.
    tensor
        The layout's ``tensor``.
    """
    if model.tied:
        return Misfit(("model", "tied"), "the head gives every row of the shared weight a gradient: set it to false")
    if tensor != "1d":
        return Misfit(("layout", "tensor"), f"{tensor} cuts the embedding's rows, too: use 1d")
    if train.optimizer == "onebit-adam":
        return Misfit(("train", "optimizer"), "1-bit Adam averages momenta, in which no row is zero: use adamw")
    if train.sync != "all-reduce":
        return Misfit(
            ("train", "sync"), f"{train.sync} sends gradients to a server, and has no reduction: use all-reduce"
        )
    if train.schedule in UNFLUSHED:
        return Misfit(("train", "schedule"), f"{train.schedule} has not been built for gradients by rows: use 1f1b")
    return None


def find_sparse_misfit(model: Model, train: Train, tensor: str) -> Misfit | None:
    """Return why the embedding's gradient cannot always travel by rows; None if it can, or if that is not asked for."""
    if train.sparse_gradients != "always":
        return None
    found = find_row_obstacle(model, train, tensor)
    return found and Misfit(found.field, f"{found.words}, or train.sparse_gradients to auto or never")


def find_unused_rows(model: Model, train: Train, tensor: str) -> Misfit | None:
    """Why the embedding's gradient travels whole although it might have travelled by rows; None if nobody asked."""
    return find_row_obstacle(model, train, tensor) if train.sparse_gradients in ("auto", "measured") else None


def may_send_rows(model: Model, train: Train, tensor: str) -> bool:
    """Return whether the embedding's gradient may travel by rows."""
    return train.sparse_gradients != "never" and find_row_obstacle(model, train, tensor) is None
