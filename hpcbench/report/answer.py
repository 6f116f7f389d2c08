"""What the numbers say, in plain sentences."""

from collections.abc import Callable, Sequence

from hpcbench.collect.lines import number
from hpcbench.collect.submission import UNKNOWN_SITE
from hpcbench.contract.state import BAD, OPEN
from hpcbench.report.compare import GOOD, NO_LOSS, NOT_FASTER, NOT_SHOWN, WORSE, Cell, Row, paired
from hpcbench.report.equal_time import WINDOW
from hpcbench.report.findings import LEVEL, LossFinding, SpeedFinding
from hpcbench.report.measures import is_uncompressed, own_environment
from hpcbench.report.outliers import odd_baselines, slow_hosts
from hpcbench.report.statistics import Interval
from hpcbench.report.statistics.power import MOST
from hpcbench.study.scheme import assignments

_WHERE = {"local": "On this machine", UNKNOWN_SITE: "By these logs"}


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
    return [
        *filter(None, sentences),
        *_loss(compared),
        *_loss_in_time(compared),
        *_basis(cell, base),
        *_odd(cell, base),
    ]


def trouble(cell: Cell) -> list[str]:
    """One line for each run that is no measurement, with its reason and where that stands."""
    found = []
    for measures in cell.runs:
        run = measures.run
        if run.state in BAD:
            found.append(f"{run.id}: {run.verdict}")
    waiting = [measures.run for measures in cell.runs if measures.run.state in OPEN]
    if waiting:
        running = sum(run.state == "running" for run in waiting)
        found.append(f"{running} of {len(cell.runs)} runs still running, {len(waiting) - running} waiting.")
    return found


def is_control(row: Row) -> bool:
    """Whether a scheme has the algorithm of the compressed ones, but no codec."""
    return all(is_uncompressed(measures.run) and not measures.run.given for measures in row.runs)


def _speed(schemes: list[Row], site: str) -> list[str]:
    if not schemes:
        return []
    good = [row for row in schemes if row.verdict.startswith(GOOD)]
    bad = [row for row in schemes if row.verdict.startswith(WORSE)]
    open_ = [row for row in schemes if row.verdict.startswith(NOT_SHOWN)]
    blind = [row for row in schemes if row.verdict.startswith(NO_LOSS)]
    where = _WHERE.get(site, f"On {site}")
    sentences = []
    if good:
        best = max(good, key=lambda row: row.speed.estimate if row.speed else 0.0)
        sentences.append(f"{where} compression pays: {_list(good, _gain)}, at a loss as good as the baseline's.")
        if len(good) > 1:
            sentences.append(f"The fastest of them is {best.scheme}.")
    elif all(row.speed and row.speed.slower for row in schemes):
        sentences.append(f"{where} compression does not pay: {_every(schemes)} slower than the baseline.")
    elif not bad and not open_ and not blind:
        sentences.append(f"{where} compression does not pay: {_none(schemes)} faster than the baseline.")
    elif not open_ and not blind:
        sentences.append(f"{where} compression does not pay: what is faster trains to a worse loss.")
    else:
        sentences.append(_undecided(schemes, where))
    if bad:
        sentences.append(f"Faster, but at a worse loss: {_list(bad, _gain)}.")
    if blind:
        sentences.append(f"Faster, but without a validation loss to compare: {_list(blind, _gain)}.")
    if good or bad or blind:
        losing = [row for row in schemes if row not in (*good, *bad, *blind, *open_)]
        if losing:
            sentences.append(f"Not faster: {_list(losing, _gain)}.")
    if open_:
        undecided = [row.loss if row.speed_shown == "faster" else row.speed for row in open_]
        sentences.append(f"Not decided for {_list(open_)}: too few repeats{_enough(undecided)}.")
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


def _enough(findings: Sequence[SpeedFinding | LossFinding | None]) -> str:
    """How many repeats would probably show more."""
    known = [finding for finding in findings if finding is not None]
    if not all(finding.pairs > 1 for finding in known) or not known:
        return "; a single pair tells no scatter (repeats: in the study)"
    counts = [finding.enough for finding in known]
    largest = max((count for count in counts if count is not None), default=None)
    if largest is None or None in counts:
        return f"; as the pairs scatter, even {MOST} would probably not decide all"
    return f"; as the pairs scatter, about {largest} would probably be enough (repeats: in the study)"


def _loss(rows: list[Row]) -> list[str]:
    known = [row for row in rows if row.loss is not None]
    shown = {words: [row for row in known if row.loss_shown == words] for words in ("worse", "better", "as good")}
    rest = [row for row in known if row.loss_shown == "not shown"]
    sentences = []
    for words in ("worse", "better"):
        if shown[words]:
            change = _list(shown[words], lambda row: _change(row.loss))
            sentences.append(f"{words.capitalize()} loss than the baseline at equal steps: {change}.")
    if shown["as good"]:
        sentences.append(f"Loss as good as the baseline's, within the margin: {_list(shown['as good'], _within)}.")
    if rest:
        enough = _enough([row.loss for row in rest])
        sentences.append(f"No verdict on the loss of {_list(rest)}: too few repeats for the margin{enough}.")
    return sentences


def _loss_in_time(rows: list[Row]) -> list[str]:
    parts = []
    for words in ("better", "as good", "worse", "not shown"):
        found = [row for row in rows if row.loss_in_time and row.loss_in_time.shown == words]
        if found:
            parts.append(f"{words} for {_list(found, lambda row: _change(row.loss_in_time))}")
    return [f"Training loss at equal time: {'; '.join(parts)}."] if parts else []


def _basis(cell: Cell, base: Row) -> list[str]:
    sentences = _method(cell)
    if any(row.verdict.startswith(NOT_FASTER) and row.speed and not row.speed.slower for row in cell.rows):
        sentences.append(f"Not faster is what is shown to gain less than {100 * cell.criteria.speed_margin:.3g} %.")
    margin = next((row.loss_margin for row in cell.rows if row.loss_margin is not None), None)
    if margin is not None:
        sentences.append(
            f"A loss is as good when two one-sided tests show it within {margin:.4f} of the baseline's"
            f" ({100 * cell.criteria.loss_margin:.3g} % of it)."
        )
    if any(row.loss_in_time for row in cell.rows):
        sentences.append(
            "Equal time is when the faster run of a pair ended; the other's learning rate had not yet fallen as far."
            f" Losses there are means of the last {100 * WINDOW:.3g} % of the steps."
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


def _method(cell: Cell) -> list[str]:
    """What the intervals and the verdicts rest on."""
    found = [row.speed for row in cell.rows if row.speed]
    if not found:
        return []
    counts = sorted({finding.pairs for finding in found})
    pairs = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    tested = sum(finding.equal is not None for finding in found)
    level = f"{100 * LEVEL:.0f} %"
    if not tested:
        basis = "no interval can be given"
    elif tested == 1:
        basis = f"the interval is Student's t, the verdict a test at {level}"
    else:
        basis = f"intervals (Student's t) are not corrected for {tested} schemes, verdicts ({level}, Holm) are"
    noun = "pair" if counts == [1] else "pairs"
    if any(measures.run.given for measures in cell.runs):
        return [
            f"Each scheme is compared over {pairs} {noun} of logs, the first with the baseline's first and so on in the"
            f" order given; {basis}.",
            "That the logs of a pair had equal model, batch, ranks, seed and nodes is not checked.",
        ]
    return [f"Each scheme is compared over {pairs} {noun} of runs of equal seed{_where(cell)}; {basis}."]


def _odd(cell: Cell, base: Row) -> list[str]:
    """Nodes and allocations that were unlike the others."""
    sentences = [
        f"Node {host.name} is {100 * host.excess:.0f} % slower than the median of its runs' nodes"
        f" ({host.slow} of {host.runs} runs)."
        for host in slow_hosts(cell.runs)
    ]
    for pairing, ratio in odd_baselines(base.runs):
        sentences.append(
            f"The baseline of {pairing} ran at {ratio:.2f} times the median speed of the baselines: its nodes, or what"
            " else went on there, were unlike the others'."
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


def _change(finding: LossFinding | None) -> str:
    # Adding 0 takes the sign from a zero.
    return f" ({round(finding.estimate, 4) + 0.0:+.4f})" if finding else ""


def _within(row: Row) -> str:
    side = row.loss.side if row.loss else None
    return f" ({side} by less than the margin)" if side else ""


def _ratio(interval: Interval) -> str:
    return f"{interval.estimate:.2f}"
