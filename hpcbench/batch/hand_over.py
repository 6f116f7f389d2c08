"""A submission on disk into its scheduler's hands; what was cut off is found again and goes on."""

from collections.abc import Callable
from pathlib import Path

from hpcbench.batch.after import After
from hpcbench.batch.deliver import Order, deliver, settle
from hpcbench.batch.provenance import keep
from hpcbench.batch.schedulers.opened import open_scheduler
from hpcbench.batch.tracking.ledger import Ledger
from hpcbench.batch.tracking.track import track
from hpcbench.batch.write import submissions
from hpcbench.contract.submission import moved_from, read_submission
from hpcbench.files import read_json


def find_open(base: Path, digest: str) -> Path | None:
    """The newest submission of just this in `base`, if something of it waits to be handed in, or to end."""
    for root in reversed(submissions(base)):
        # A dry run, what is damaged, or what was written elsewhere is nothing to go on with.
        written = read_json(root / "submission.json") or {}
        if written.get("digest") != digest or written.get("dry_run"):
            continue
        submission = read_submission(root)
        if moved_from(root, submission) is not None:
            continue
        ledger = Ledger(root)
        if any(parcel.id is None for parcel in ledger.parcels) or _left(root, ledger):
            return root
        return None if track(root).over else root
    return None


def go_on(root: Path, study: Path, before: After | None, after_any: bool, progress: Callable[[int, int], None]) -> str:
    """Hand in what is left of a submission; returns one line for the user."""
    ledger = Ledger(root)
    taken = settle(open_scheduler(root), ledger)
    orders = _left(root, ledger)
    if orders:
        said = hand_over(root, study, before, after_any, progress)
        return f"went on with a submission that was cut off: {len(orders)} more handed in. {said}".rstrip()
    found = f"; {taken} whose answer had been lost were found in the queue" if taken else ""
    return f"already submitted and not over{found}: nothing was handed in (--again submits it anew)"


def hand_over(
    root: Path, study: Path, before: After | None, after_any: bool, progress: Callable[[int, int], None]
) -> str:
    """Hand in what is not yet; returns the scheduler's line for the user.

    Parameters
    ----------
    study
        Its file.
    before, after_any
        What must have ended before, and whether it may have failed.
    progress
        Told how many parcels of how many are handed in.
    """
    keep(root, study)
    ledger = Ledger(root)
    orders = _left(root, ledger)
    done = 0

    def said() -> None:
        nonlocal done
        done += 1
        progress(done, len(orders))

    return deliver(
        root,
        open_scheduler(root),
        ledger,
        orders,
        name=read_submission(root).name,
        after=before.ids if before else [],
        after_any=after_any,
        said=said,
    )


def _left(root: Path, ledger: Ledger) -> list[Order]:
    orders = [Order(**dict(bundled)) for bundled in read_submission(root).bundles]
    return [order for order in orders if ledger.of(order.jobs[0]) is None]
