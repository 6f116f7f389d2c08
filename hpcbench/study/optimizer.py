"""Which optimizer a run trains with: its scheme's, or else its study's."""

from collections.abc import Callable

from hpcbench.errors import UserError
from hpcbench.study.schema import Scheme, Train
from hpcbench.study.yaml12 import Path_


def settled(train: Train, scheme: Scheme, where: Callable[[Path_], str]) -> Train:
    """How the runs of a scheme train, with all that depends on their optimizer filled in.

    Parameters
    ----------
    where
        ``file:line`` of a path of the study.

    Raises
    ------
    UserError
        The optimizer cannot work so.
    """
    optimizer = scheme.optimizer or train.optimizer
    if optimizer != "onebit-adam":
        return train.model_copy(update={"optimizer": optimizer, "freeze_step": None})
    if train.zero:
        raise UserError(
            f"{where(('train', 'zero'))}: train.zero: 1-bit Adam averages whole momenta, and stage {train.zero} cuts "
            "them up: set it to 0, or train with another optimizer"
        )
    freeze_step = train.freeze_step or max(train.steps // 5, train.warmup_steps, 1)
    if freeze_step >= train.steps:
        raise UserError(
            f"{where(('train', 'freeze_step'))}: train.freeze_step: a variance that is frozen after {freeze_step} "
            f"updates leaves none of {train.steps} steps to average momenta in: lower it"
        )
    return train.model_copy(update={"optimizer": optimizer, "freeze_step": freeze_step})
