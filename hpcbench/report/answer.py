"""Summary at the start of a report: whether compression pays in each cell, and which runs failed."""

from collections import Counter
from collections.abc import Callable, Sequence

from hpcbench.collect.submission import UNKNOWN_SITE, RunResult
from hpcbench.contract.state import BAD, OPEN
from hpcbench.contract.text import make_printable
from hpcbench.present.notation import bounds
from hpcbench.report import sentences as say
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.findings import AS_FAST, INCONCLUSIVE, LossFinding, SpeedFinding
from hpcbench.report.front import Front, compute_front, conclude, is_good
from hpcbench.report.kinds import SchemeKind
from hpcbench.report.looks import MOST
from hpcbench.report.method import describe_method
from hpcbench.report.provenance import list_some
from hpcbench.report.recommendation import is_paying_by_codec, list_plain, recommend
from hpcbench.report.statistics import Interval
from hpcbench.report.titles import describe_cell, describe_size
from hpcbench.report.verdicts import LOSS_OPEN, WORSE_OPEN, WORSE_SLOWER
from hpcbench.report.weaknesses import LEARNT_NOTHING, RARE_FAILURES, Weakened, find_weaknesses

_MARGIN = 100 * AS_FAST
_WHERE = {"local": "On this machine", UNKNOWN_SITE: "By these logs"}


def answer(cell: Cell, site: str) -> list[str]:
    """Return sentences that answer whether compression pays in a cell, followed by the footnotes."""
    weak = find_weaknesses(cell)
    lead, others = split_findings(cell, site, weak)
    return [*lead, *others, *weak.sentences, *list_methods(cell)]


def split_findings(cell: Cell, site: str, weak: Weakened) -> tuple[list[str], list[str]]:
    """Return the answer (one or two sentences) and the other findings."""
    findings, recommendation = list_findings(cell, site, weak), recommend(cell)
    count = 2 if findings[:1] and "inconclusive" in findings[0] else 1
    return [*findings[:count], *recommendation], findings[count:]


def list_methods(cell: Cell) -> list[str]:
    """Describe the method that produced a cell's findings. The result is empty if the cell has no findings."""
    base = cell.row(cell.baseline)
    return describe_method(cell, base) if base is not None and base.completed else []


def list_findings(cell: Cell, site: str, weak: Weakened) -> list[str]:
    """Return sentences that answer whether compression pays in a cell, without footnotes."""
    base = cell.row(cell.baseline)
    if base is None:
        return [say.NO_BASELINE_RUN]
    if not base.completed:
        return [say.NO_BASELINE_COMPLETED.format(scheme=base.scheme)]
    pareto = compute_front(cell)
    compared = [row for row in cell.rows if row is not base and row.compared]
    schemes = [row for row in compared if not row.kind.is_control and not row.idle]
    controls = [row for row in compared if row.kind.is_control]
    where = f"{_WHERE.get(site, f'On {site}')} ({describe_size(cell)})"
    lines = []
    if not compared and len(cell.rows) > 1:
        lines.append(say.NO_PAIR_COMPLETED.format(scheme=base.scheme))
    if schemes:
        lines += _describe_schemes(schemes, where, weak, pareto, list_plain(cell))
    if idle := [row for row in compared if row.idle]:
        lines.append(say.NEVER_ENCODED.format(schemes=_list(idle)))
    lines += [_describe_control(row, row.speed) for row in controls if row.speed]
    if diverged := [row for row in cell.rows if row.diverged]:
        lines.append(say.DIVERGED.format(schemes=_list(diverged)))
    return [*lines, *conclude(cell, pareto)]


def summarize_cells(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Summarize a sweep: in how many cells compression pays, and in which cell it pays most."""
    paying = [(row.speed, row.scheme, cell) for cell in cells for row in cell.rows if row.speed and is_good(row)]
    if not paying:
        return (say.NO_CELL_PAYS.format(cells=len(cells)),)
    speed, scheme, cell = max(paying, key=lambda item: item[0].estimate)
    count = len({id(cell) for _, _, cell in paying})
    place = make_printable(describe_cell(cell.values))
    return (
        say.CELLS_THAT_PAY.format(count=count, cells=len(cells), scheme=scheme, cell=place, speed=_show_ratio(speed)),
    )


def list_trouble(cell: Cell) -> list[str]:
    """Return one line per failure reason, with its file location, and the number of unfinished runs."""
    runs_by_reason: dict[str, list[RunResult]] = {}
    for measures in cell.runs:
        run = measures.run
        if run.state in BAD:
            runs_by_reason.setdefault(f"{run.state}: {run.verdict.reason}", []).append(run)
    lines = [f"{list_some([run.id for run in runs])}: {runs[0].verdict}" for runs in runs_by_reason.values()]
    states: Counter[str] = Counter(measures.run.state for measures in cell.runs if measures.run.state in OPEN)
    if states:
        running = states["running"]
        lines.append(
            f"{running} of {len(cell.runs)} runs are still running, and {states.total() - running} are waiting."
        )
    return lines


def _describe_schemes(
    schemes: list[SchemeRow], where: str, weak: Weakened, pareto: Front, plain: list[str]
) -> list[str]:
    def select(*groups: str) -> list[SchemeRow]:
        return [row for row in schemes if row.outcome and row.outcome.group in groups]

    good, unsteady, blind, as_fast = select("good"), select("unsteady"), select("no loss"), select("as fast")
    undecided = [row for row in schemes if row in select("open") or row.outcome == WORSE_OPEN]
    worse = [row for row in select("worse") if row.speed_shown == "faster"]
    slower = [row for row in schemes if row in select("not faster") or row.outcome == WORSE_SLOWER]
    if good:
        lines = _describe_paying(good, where, weak, pareto, plain)
    else:
        headlines = (
            (all(row.speed and row.speed.slower for row in schemes), say.ALL_SLOWER),
            (bool(unsteady), say.INCONCLUSIVE_LOSSES),
            (bool(undecided or blind), say.SEEMS_SLOWER if _are_probably_slower(schemes) else say.INCONCLUSIVE),
            (bool(worse), say.ONLY_WORSE_LOSSES),
            (bool(as_fast), say.NONE_FASTER_BY),
            (True, say.NONE_FASTER),
        )
        headline = next(sentence for applies, sentence in headlines if applies)
        lines = [headline.format(where=where, margin=_MARGIN, schemes=_list(schemes, _show_gain))]
    lists: tuple[tuple[str, list[SchemeRow], Callable[[SchemeRow], str]], ...] = (
        (say.WORSE_LOSS, worse, _show_gain),
        (say.UNSTEADY_LOSS, unsteady, _show_worst_pair),
        (say.NO_LOSS, blind, _show_gain),
        (say.NOT_FASTER, slower if good or worse or blind or unsteady else [], _show_gain),
        (say.AS_FAST, as_fast, _show_gain),
    )
    lines += [sentence.format(schemes=_list(rows, detail), margin=_MARGIN) for sentence, rows, detail in lists if rows]
    if undecided:
        findings = [row.loss if row.outcome == LOSS_OPEN else row.speed for row in undecided]
        lines.append(say.TOO_FEW_REPEATS.format(schemes=_list(undecided), advice=_write_advice(findings)))
    return lines


def _describe_paying(good: list[SchemeRow], where: str, weak: Weakened, pareto: Front, plain: list[str]) -> list[str]:
    """Describe the schemes that are faster without a worse loss.

    If a scheme is not significantly faster than a control without a codec, the algorithm alone may explain the
    scheme's speed.
    """
    loss = say.LOSS_NO_WORSE
    if any(weak.has(row.scheme, LEARNT_NOTHING) for row in good):
        loss = say.LOSS_WITHOUT_MEANING
    elif any(weak.has(row.scheme, RARE_FAILURES) for row in good):
        loss = say.LOSS_NO_WORSE_MOSTLY
    fastest_first = sorted(good, key=lambda row: -row.speed.estimate if row.speed else 0.0)
    paying = [row for row in fastest_first if is_paying_by_codec(row, pareto, plain)]
    others = [row for row in fastest_first if row not in paying]
    first = say.PAYS if paying else say.INCONCLUSIVE
    schemes = ", ".join([_list(paying[:1], _show_gain), *filter(None, [_list(paying[1:], _show_estimate)])])
    lines = [first.format(where=where, schemes=schemes, loss=loss)]
    if others:
        controls = ", ".join(plain)
        lines.append(say.FASTER_BY_ALGORITHM.format(schemes=_list(others, _show_gain), loss=loss, controls=controls))
    return lines


def _are_probably_slower(schemes: list[SchemeRow]) -> bool:
    highest = [row.speed.high for row in schemes if row.speed]
    return all(high is not None and high < 1 for high in highest)


def _describe_control(row: SchemeRow, speed: SpeedFinding) -> str:
    if speed.shown == INCONCLUSIVE:
        sentence = say.CONTROL_INCONCLUSIVE
    elif row.kind is SchemeKind.CAST:
        sentence = say.CONTROL_CAST
    elif speed.shown == "faster" or speed.slower:
        sentence = say.CONTROL_DIFFERS
    else:
        sentence = say.CONTROL_AS_FAST if speed.shown == "as fast" else say.CONTROL_SAME
    kind, verdict = (
        say.SAME_ALGORITHM if row.kind is SchemeKind.PLAIN else say.CAST,
        row.outcome.text if row.outcome else "",
    )
    return sentence.format(scheme=row.scheme, kind=kind, speed=_show_ratio(speed), verdict=verdict, margin=_MARGIN)


def _write_advice(findings: Sequence[SpeedFinding | LossFinding | None]) -> str:
    """Return a sentence with the number of pairs that would probably make all findings conclusive."""
    pairs = [finding.enough if finding.pairs > 1 else 0 for finding in findings if finding is not None]
    if not pairs or 0 in pairs:
        return say.ONE_PAIR
    if None in pairs:
        return say.MANY_PAIRS_NEEDED.format(pairs=MOST)
    return say.PAIRS_NEEDED.format(pairs=max(filter(None, pairs)))


def _list(rows: list[SchemeRow], detail: Callable[[SchemeRow], str] = lambda row: "") -> str:
    return ", ".join(f"{row.scheme}{detail(row)}" for row in rows)


def _show_gain(row: SchemeRow) -> str:
    return f" ({_show_ratio(row.speed)})" if row.speed else ""


def _show_estimate(row: SchemeRow) -> str:
    return f" ({row.speed.estimate:.2f})" if row.speed else ""


def _show_worst_pair(row: SchemeRow) -> str:
    return f" ({_show_ratio(row.speed)}; worst pair {row.loss.worst:+.4f})" if row.speed and row.loss else ""


def _show_ratio(speed: Interval) -> str:
    """Format a speed ratio with its interval."""
    return f"{speed.estimate:.2f} times the baseline's speed, {bounds(speed, '{:.2f}'.format)}"
