"""The answer of a report, in plain sentences."""

from collections.abc import Callable, Sequence

from hpcbench.collect.submission import UNKNOWN_SITE, RunResult
from hpcbench.contract.state import BAD, OPEN
from hpcbench.present.notation import bounds
from hpcbench.report.compare import Cell, Row
from hpcbench.report.findings import AS_FAST, LossFinding, SpeedFinding
from hpcbench.report.front import Front, conclusion, front, join_names
from hpcbench.report.kinds import Kind
from hpcbench.report.looks import MOST
from hpcbench.report.method import basis
from hpcbench.report.statistics import Interval
from hpcbench.report.titles import size_words
from hpcbench.report.verdicts import IDLE, LOSS_OPEN, WORSE_OPEN, WORSE_SLOWER, Group
from hpcbench.report.weaknesses import LEARNT_NOTHING, RARE_FAILURES, Weakened, weakened

RARE = "rare failures not excluded"
"""Addition to each verdict about a loss that has too few pairs to exclude rare failures."""
_WHERE = {"local": "On this machine", UNKNOWN_SITE: "By these logs"}


def answer(cell: Cell, site: str) -> list[str]:
    """Sentences that answer whether compression pays in this cell, the answer first, with their footnotes."""
    weak = weakened(cell)
    return [*findings(cell, site, weak), *weak.sentences, *method(cell)]


def method(cell: Cell) -> list[str]:
    """Sentences about the method of a cell's findings; empty if it has none."""
    base = cell.row(cell.baseline)
    return basis(cell, base) if base is not None and base.completed else []


def findings(cell: Cell, site: str, weak: Weakened) -> list[str]:
    """Sentences that answer whether compression pays in this cell, without their footnotes."""
    base = cell.row(cell.baseline)
    if base is None or not base.completed:
        missing = "there is no run of the baseline" if base is None else f"no run of {base.scheme} completed"
        return [f"Nothing can be compared: {missing}."]
    rivals = front(cell)
    compared = [row for row in cell.rows if row is not base and row.compared]
    idle = [row for row in compared if row.idle]
    schemes = [row for row in compared if not row.kind.is_control and not row.idle]
    diverged = [row for row in cell.rows if row.diverged]
    sentences = []
    if not compared and len(cell.rows) > 1:
        sentences.append(f"Nothing can be compared: no scheme completed a run that has its pair in {base.scheme}.")
    plain = [row.scheme for row in compared if row.kind is Kind.PLAIN]
    where = f"{_WHERE.get(site, f'On {site}')} ({size_words(cell)})"
    sentences += [*_speed(schemes, where, weak, rivals, plain), *_idle(idle)]
    sentences += [_control(row) for row in compared if row.kind.is_control]
    if diverged:
        sentences.append(f"Diverged and therefore not compared: {_list(diverged)}.")
    return [*filter(None, sentences), *conclusion(cell, rivals)]


def trouble(cell: Cell) -> list[str]:
    """One line for each run that is no measurement, with its reason and where that stands."""
    alike: dict[str, list[RunResult]] = {}
    for measures in cell.runs:
        run = measures.run
        if run.state in BAD:
            alike.setdefault(f"{run.state}: {run.verdict.reason}", []).append(run)
    found = []
    for runs in alike.values():
        names = [run.id for run in runs]
        who = ", ".join(names) if len(names) < 4 else f"{', '.join(names[:2])} and {len(names) - 2} more"
        found.append(f"{who}: {runs[0].verdict}")
    waiting = [measures.run for measures in cell.runs if measures.run.state in OPEN]
    if waiting:
        running = sum(run.state == "running" for run in waiting)
        found.append(f"{running} of {len(cell.runs)} runs still running, {len(waiting) - running} waiting.")
    return found


def _speed(schemes: list[Row], where: str, weak: Weakened, rivals: Front, plain: list[str]) -> list[str]:
    if not schemes:
        return []

    def of(*groups: Group) -> list[Row]:
        return [row for row in schemes if row.outcome and row.outcome.group in groups]

    good, unsteady, blind, alike = of("good"), of("unsteady"), of("no loss"), of("as fast")
    undecided = [row for row in schemes if row in of("open") or row.outcome == WORSE_OPEN]
    bad = [row for row in of("worse") if row.speed_shown == "faster"]
    sentences = []
    if good:
        sentences += _faster_and_as_good(good, where, weak, rivals, plain)
    elif all(row.speed and row.speed.slower for row in schemes):
        sentences.append(f"{where} compression does not pay: {_every(schemes)} slower than the baseline.")
    elif unsteady:
        sentences.append(
            f"{where} it is inconclusive whether compression pays; faster schemes are no worse on average only."
        )
    elif not bad and not undecided and not blind:
        gain = f" {100 * AS_FAST:.0f} %" if alike else ""
        sentences.append(f"{where} compression does not pay: {_none(schemes)}{gain} faster than the baseline.")
    elif not undecided and not blind:
        sentences.append(f"{where} compression does not pay: the faster schemes train to a worse loss.")
    else:
        sentences.append(_undecided(schemes, where))
    if bad:
        sentences.append(f"Faster, but at a worse loss: {_list(bad, _gain)}.")
    if unsteady:
        sentences.append(f"Faster, with a loss that is no worse on average only: {_list(unsteady, _worst)}.")
    if blind:
        sentences.append(f"Faster, but without a validation loss to compare: {_list(blind, _gain)}.")
    losing = [row for row in schemes if row in of("not faster") or row.outcome == WORSE_SLOWER]
    if losing and (good or bad or blind or unsteady):
        sentences.append(f"Not faster: {_list(losing, _gain)}.")
    if alike:
        sentences.append(f"As fast as the baseline, within {100 * AS_FAST:.0f} %: {_list(alike, _gain)}.")
    if undecided:
        open_ = [row.loss if row.outcome == LOSS_OPEN else row.speed for row in undecided]
        sentences.append(f"Inconclusive for {_list(undecided)}: too few repeats{_enough(open_)}.")
    return sentences


def _idle(rows: list[Row]) -> list[str]:
    if not rows:
        return []
    whose = "its" if len(rows) == 1 else "their"
    return [
        f"{IDLE.capitalize()} in {_list(rows)}: 0 % of the bytes that {whose} codecs were for went through them."
        f" So {whose} speed and loss say nothing of the codecs, and are not counted."
    ]


def _faster_and_as_good(good: list[Row], where: str, weak: Weakened, rivals: Front, plain: list[str]) -> list[str]:
    """Sentences about schemes that pay, and about schemes that may owe their speed only to the algorithm.

    The control without a codec has the same algorithm.
    """
    learnt = not any(weak.has(row.scheme, LEARNT_NOTHING) for row in good)
    rare = f", {RARE}" if any(weak.has(row.scheme, RARE_FAILURES) for row in good) else ""
    loss = f"at a loss no worse than the baseline's{rare}" if learnt else "at a loss that says nothing, see below"
    paying = [row for row in good if _by_codec(row, rivals, plain)]
    others = [row for row in good if row not in paying]
    if not others:
        return [f"{where} compression pays: {_list(paying, _gain)}, {loss}."]
    owing = f"{_list(others, _gain)}, {loss}, but not significantly faster than {join_names(plain)}, which has no codec"
    if paying:
        return [f"{where} compression pays: {_list(paying, _gain)}, {loss}.", f"Faster than the baseline: {owing}."]
    return [f"{where} it is inconclusive whether compression pays. Faster than the baseline: {owing}."]


def _by_codec(row: Row, rivals: Front, plain: list[str]) -> bool:
    """Whether the scheme is significantly faster than the controls with its algorithm and no codec.

    True if no such control ran.
    """
    if row.runs[0].run.settings.scheme.variables:
        return True  # the MPI library compresses within its own algorithm: the baseline has that one
    duels = [rivals.gain(row.scheme, control) for control in plain]
    return all(duel is not None and duel.faster for duel in duels)


def _undecided(schemes: list[Row], where: str) -> str:
    highest = [row.speed.high for row in schemes if row.speed]
    if any(high is None or high >= 1 for high in highest):
        return f"{where} it is inconclusive whether compression pays."
    return (
        f"{where} compression seems to lose time: {_list(schemes, _gain)}. That is not significant for every"
        " scheme yet."
    )


def _control(row: Row) -> str:
    if row.speed is None:
        return ""
    words = "a plain cast to 16 bits" if row.kind is Kind.CAST else "the same algorithm without a codec"
    if row.speed.shown == "not shown":
        return f"The speed of {row.scheme}, {words}, is inconclusive: {_times(row.speed)}."
    sentence = f"{row.scheme}, {words}, runs at {_times(row.speed)}"
    if row.kind is Kind.CAST:
        return sentence + (f" ({row.outcome.words})." if row.outcome else ".")
    if row.speed.shown == "faster" or row.speed.slower:
        return f"{sentence}: that part is the algorithm's, the rest is the codecs'."
    gain = f", within {100 * AS_FAST:.0f} %" if row.speed.shown == "as fast" else ""
    return f"{sentence}: the algorithm alone gains nothing{gain}."


def _enough(findings: Sequence[SpeedFinding | LossFinding | None]) -> str:
    """Return the number of repeats that would probably show more, in words."""
    known = [finding for finding in findings if finding is not None]
    if not all(finding.pairs > 1 for finding in known) or not known:
        return "; a single pair tells no scatter (repeats: in the study)"
    counts = [finding.enough for finding in known]
    largest = max((count for count in counts if count is not None), default=None)
    if largest is None or None in counts:
        return f"; as the pairs scatter, even {MOST} would probably not decide all"
    return f"; as the pairs scatter, about {largest} would probably be enough (repeats: in the study)"


def _every(rows: list[Row]) -> str:
    return f"{rows[0].scheme} is" if len(rows) == 1 else "every scheme is"


def _none(rows: list[Row]) -> str:
    return f"{rows[0].scheme} is not" if len(rows) == 1 else "no scheme is"


def _list(rows: list[Row], detail: Callable[[Row], str] = lambda row: "") -> str:
    return join_names([f"{row.scheme}{detail(row)}" for row in rows])


def _gain(row: Row) -> str:
    return f" ({_times(row.speed)})" if row.speed else ""


def _worst(row: Row) -> str:
    return f" ({_times(row.speed)}; worst pair {row.loss.worst:+.4f})" if row.speed and row.loss else ""


def _times(speed: Interval) -> str:
    """Return the ratio of speeds with the interval that a statement about it has to allow for."""
    return f"{speed.estimate:.2f} times the baseline's speed, {bounds(speed, '{:.2f}'.format)}"
