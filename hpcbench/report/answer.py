"""What the numbers say, in plain sentences."""

from collections.abc import Callable

from hpcbench.collect.lines import number
from hpcbench.collect.state import BAD, OPEN
from hpcbench.report.compare import GOOD, NOT_SHOWN, WORSE, Cell, Row, paired
from hpcbench.report.measures import is_uncompressed, own_environment
from hpcbench.report.statistics import Interval
from hpcbench.study.schemes import assignments


def answer(cell: Cell, site: str) -> list[str]:
    """Sentences that answer whether compression pays in this cell, the answer first."""
    base = cell.row(cell.baseline)
    if base is None or not base.completed:
        missing = "there is no run of the baseline" if base is None else f"no run of {base.scheme} completed"
        return [f"Nothing can be compared: {missing}."]
    compared = [row for row in cell.rows if row is not base and row.speed is not None and not row.diverged]
    control = [row for row in compared if is_control(row)]
    schemes = [row for row in compared if row not in control]
    diverged = [row for row in cell.rows if row.diverged]
    sentences = []
    if not compared and len(cell.rows) > 1:
        sentences.append(f"Nothing can be compared: no scheme completed a run that has its pair in {base.scheme}.")
    sentences += [*_speed(schemes, site), *(_control(row) for row in control)]
    if diverged:
        sentences.append(f"Diverged, and out of the comparison whatever the speed: {_list(diverged)}.")
    return [*filter(None, sentences), *_loss(compared), *_basis(cell, base)]


def trouble(cell: Cell) -> list[str]:
    """One line for each run that is no measurement, with its reason and where that stands."""
    found = []
    for measures in cell.runs:
        run = measures.run
        if run.state in BAD:
            reason = f": {run.verdict.reason}" if run.verdict.reason else ""
            where = f" ({run.verdict.where})" if run.verdict.where else ""
            found.append(f"{run.id}: {run.state}{reason}{where}")
    waiting = [measures.run for measures in cell.runs if measures.run.state in OPEN]
    if waiting:
        running = sum(run.state == "running" for run in waiting)
        found.append(f"{running} of {len(cell.runs)} runs still running, {len(waiting) - running} waiting.")
    return found


def is_control(row: Row) -> bool:
    """Whether a scheme has the algorithm of the compressed ones, but no codec."""
    return all(is_uncompressed(measures.run) for measures in row.runs)


def slower(row: Row) -> bool:
    """Whether a scheme is shown to be slower than the baseline."""
    return row.speed is not None and row.speed.high is not None and row.speed.high < 1


def _speed(schemes: list[Row], site: str) -> list[str]:
    if not schemes:
        return []
    good = [row for row in schemes if row.verdict.startswith(GOOD)]
    bad = [row for row in schemes if row.verdict.startswith(WORSE)]
    open_ = [row for row in schemes if row.verdict.startswith(NOT_SHOWN)]
    where = "On this machine" if site == "local" else f"On {site}"
    sentences = []
    if good:
        best = max(good, key=lambda row: row.speed.estimate if row.speed else 0.0)
        sentences.append(f"{where} compression pays: {_list(good, _gain)}, at a loss as good as the baseline's.")
        if len(good) > 1:
            sentences.append(f"The fastest of them is {best.scheme}.")
    elif all(slower(row) for row in schemes):
        sentences.append(f"{where} compression does not pay: {_every(schemes)} slower than the baseline.")
    elif not bad and not open_:
        sentences.append(f"{where} compression does not pay: {_none(schemes)} faster than the baseline.")
    elif not open_:
        sentences.append(f"{where} compression does not pay: what is faster trains to a worse loss.")
    else:
        sentences.append(_undecided(schemes, where))
    if bad:
        sentences.append(f"Faster, but at a worse loss: {_list(bad, _gain)}.")
    if good or bad:
        losing = [row for row in schemes if row not in (*good, *bad, *open_)]
        if losing:
            sentences.append(f"Not faster: {_list(losing, _gain)}.")
    if open_:
        sentences.append(
            f"Not decided for {_list(open_)}: too few repeats; more (repeats: in the study) narrow the intervals."
        )
    return sentences


def _undecided(schemes: list[Row], where: str) -> str:
    estimates = sorted(row.speed.estimate for row in schemes if row.speed)
    if not estimates or estimates[-1] >= 1:
        return f"Whether compression pays {where[0].lower()}{where[1:]} is not shown yet."
    span = f"{estimates[0]:.2f} to {estimates[-1]:.2f}" if len(estimates) > 1 else f"{estimates[0]:.2f}"
    return (
        f"{where} compression seems to lose time, {span} times the baseline's speed by estimate; that it does is not"
        " shown for every scheme yet."
    )


def _control(row: Row) -> str:
    if row.speed is None:
        return ""
    return (
        f"{row.scheme}, the same algorithm without a codec, runs at {_ratio(row.speed)} times the baseline's speed:"
        " that part is the algorithm's, the rest is the codecs'."
    )


def _loss(rows: list[Row]) -> list[str]:
    known = [row for row in rows if row.loss is not None]
    sentences = []
    worse = [row for row in known if row.loss_shown == "worse"]
    good = [row for row in known if row.loss_shown == "as good"]
    rest = [row for row in known if row.loss_shown == "not shown"]
    if worse:
        sentences.append(f"Worse loss than the baseline at equal steps: {_list(worse, _change)}.")
    if good:
        sentences.append(f"Loss as good as the baseline's, within the margin: {_list(good)}.")
    if rest:
        sentences.append(f"No verdict on the loss of {_list(rest)}: too few repeats for the margin.")
    return sentences


def _basis(cell: Cell, base: Row) -> list[str]:
    counts = sorted({row.speed.pairs for row in cell.rows if row.speed})
    sentences = []
    if counts:
        pairs = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        noun = "pair" if counts == [1] else "pairs"
        basis = (
            "no interval can be given"
            if counts == [1]
            else "intervals are Student's t, not corrected for the number of schemes"
        )
        sentences.append(f"Each scheme is compared over {pairs} {noun} of runs of equal seed{_where(cell)}; {basis}.")
    margin = next((row.loss_margin for row in cell.rows if row.loss_margin is not None), None)
    if margin is not None:
        sentences.append(
            f"A loss is as good when it is shown to be less than {margin:.4f} above the baseline's"
            f" ({100 * cell.criteria.loss_margin:.3g} % of it)."
        )
    for row in cell.rows:
        environment = own_environment(row.runs[0].run)
        if environment:
            sentences.append(
                f"{row.scheme} ran with {assignments(environment)}; what the MPI library then sent is not known."
            )
    if any(row.partial for row in cell.rows):
        sentences.append("* from runs that did not complete; they are compared with nothing.")
    log = next((measures.run.log for measures in base.runs if measures.run.log), None)
    configuration = log.data("configuration") if log else {}
    uniform = number(configuration, "valid_loss_uniform")
    unigram = number(configuration, "valid_loss_unigram")
    if uniform is not None and unigram is not None:
        sentences.append(
            f"For scale: a model that guesses has a loss of {uniform:.3f}, one that knows only how often each byte"
            f" occurs {unigram:.3f}."
        )
    return sentences


def _where(cell: Cell) -> str:
    """Whether the runs of a pair had the same nodes."""
    base = cell.row(cell.baseline)
    others = [row for row in cell.rows if row is not base and row.speed]
    both = [pair for row in others for pair in paired(row.runs, base.runs)] if base else []
    apart = sum(mine.run.allocation != other.run.allocation for mine, other in both)
    if not apart:
        return " and allocation"
    if apart == len(both):
        return ", each in an allocation of its own, perhaps on other nodes"
    return f"; {apart} of all {len(both)} pairs ran in two allocations, perhaps on other nodes"


def _every(rows: list[Row]) -> str:
    return f"{rows[0].scheme} is" if len(rows) == 1 else "every scheme is"


def _none(rows: list[Row]) -> str:
    return f"{rows[0].scheme} is not" if len(rows) == 1 else "no scheme is"


def _list(rows: list[Row], detail: Callable[[Row], str] = lambda row: "") -> str:
    words = [f"{row.scheme}{detail(row)}" for row in rows]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def _gain(row: Row) -> str:
    return f" ({_ratio(row.speed)} times the baseline's speed)" if row.speed else ""


def _change(row: Row) -> str:
    return f" ({row.loss.estimate:+.4f})" if row.loss else ""


def _ratio(interval: Interval) -> str:
    return f"{interval.estimate:.2f}"
