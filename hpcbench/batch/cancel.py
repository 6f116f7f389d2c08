"""The end of what runs of a submission, and of nothing else."""

from collections import Counter
from pathlib import Path

from hpcbench.batch.deliver import settle
from hpcbench.batch.ledger import Ledger
from hpcbench.batch.lock import locked
from hpcbench.batch.opened import open_scheduler
from hpcbench.batch.track import track


def cancel(root: Path) -> str:
    """End what runs and drop what waits; returns one line for the user.

    Raises
    ------
    UserError
        The scheduler cannot be asked, or another command is at work on the study.
    """
    with locked(root.parent):
        ledger, scheduler = Ledger(root), open_scheduler(root)
        if any(parcel.id is None for parcel in ledger.parcels):
            settle(scheduler, ledger)
        tracked = track(root)
        ids = [id for job, id in tracked.ids.items() if tracked.jobs[job].state.alive or tracked.silent]
        if not ids:
            return (
                "nothing waits or runs any more" if tracked.ids else "nothing was handed in: there is nothing to cancel"
            )
        for parcel in ledger.parcels:
            if set(parcel.elements) & set(ids):
                ledger.cancel(parcel)
        said = scheduler.cancel(ids)
    counts = Counter(said.get(id, "no answer") for id in ids)
    return ", ".join(f"{count} job{'' if count == 1 else 's'}: {words}" for words, count in counts.most_common())
