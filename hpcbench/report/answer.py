"""Summary at the start of a report: whether compression pays in each cell, and which runs failed."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hpcbench.collect.submission import UNKNOWN_SITE, RunResult
from hpcbench.contract.state import BAD, OPEN
from hpcbench.contract.str_enum import StrEnum
from hpcbench.contract.text import make_printable
from hpcbench.present.notation import between, bounds
from hpcbench.report import sentences as say
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.findings import AS_FAST, INCONCLUSIVE, LossFinding, SpeedFinding
from hpcbench.report.front import Front, compute_front, conclude, describe_interval, find_simplest, is_good
from hpcbench.report.kinds import SchemeKind
from hpcbench.report.looks import MOST
from hpcbench.report.method import describe_method
from hpcbench.report.provenance import list_some
from hpcbench.report.recommendation import find_recommended, is_paying_by_codec, list_plain, recommend
from hpcbench.report.statistics import CONFIDENCE
from hpcbench.report.titles import describe_cell, describe_size
from hpcbench.report.verdicts import LOSS_OPEN, WORSE_OPEN, WORSE_SLOWER
from hpcbench.report.weaknesses import FOUND, LEARNT_NOTHING, RARE_FAILURES, Weakened, bound_failures, find_weaknesses

_MARGIN = 100 * AS_FAST
_WHERE = {"local": "On this machine", UNKNOWN_SITE: "By these logs"}


class Verdict(StrEnum):
    """Whether compression pays in a cell. The value is the first word of the answer."""

    YES = "Yes"
    NO = "No"
    INCONCLUSIVE = "Inconclusive"


@dataclass(frozen=True)
class Answer:
    """Whether compression pays in a cell, in sentences."""

    verdict: Verdict | None = None
    """The verdict, or None if the cell has no scheme besides its baseline."""
    lead: list[str] = field(default_factory=list)
    """Sentences that explain the verdict."""
    others: list[str] = field(default_factory=list)
    """Further findings."""

    @property
    def sentences(self) -> list[str]:
        """The lead, which begins with the verdict."""
        return [f"{self.verdict}. {self.lead[0]}", *self.lead[1:]] if self.verdict else self.lead


def answer(cell: Cell, site: str) -> list[str]:
    """Return sentences that answer whether compression pays in a cell, followed by the footnotes."""
    weak = find_weaknesses(cell)
    cell_answer = find_answer(cell, site, weak)
    return [*cell_answer.sentences, *cell_answer.others, *weak.sentences, *list_methods(cell)]


def find_answer(cell: Cell, site: str, weak: Weakened) -> Answer:
    """Return the answer, with the recommendation after its first sentence."""
    plain = compare_schemes(cell, site, weak)
    lead, others = plain.lead, plain.others
    if plain.verdict in (None, Verdict.INCONCLUSIVE):
        lead, others = [*lead, *others[:1]], others[1:]
    return Answer(plain.verdict, [*lead[:1], *recommend(cell), *lead[1:]], others)


def list_methods(cell: Cell) -> list[str]:
    """Describe the method that produced a cell's findings. The result is empty if the cell has no findings."""
    base = cell.row(cell.baseline)
    return describe_method(cell, base) if base is not None and base.completed else []


def compare_schemes(cell: Cell, site: str, weak: Weakened) -> Answer:
    """Return the answer for a cell without a recommendation and without footnotes."""
    base = cell.row(cell.baseline)
    if base is None:
        return Answer(Verdict.INCONCLUSIVE, [say.NO_BASELINE_RUN])
    if not base.completed:
        return Answer(Verdict.INCONCLUSIVE, [say.NO_BASELINE_COMPLETED.format(scheme=base.scheme)])
    pareto = compute_front(cell)
    compared = [row for row in cell.rows if row is not base and row.compared]
    schemes = [row for row in compared if not row.kind.is_control and not row.idle]
    controls = [row for row in compared if row.kind.is_control]
    where = f"{_WHERE.get(site, f'On {site}')} ({describe_size(cell)})"
    of_schemes = Answer()
    if schemes:
        of_schemes = _describe_schemes(cell, schemes, where, weak, pareto)
    elif not compared and len(cell.rows) > 1:
        of_schemes = Answer(Verdict.INCONCLUSIVE, [say.NO_PAIR_COMPLETED.format(scheme=base.scheme)])
    elif compared and any(row is not base and not row.kind.is_control for row in cell.rows):
        of_schemes = Answer(Verdict.INCONCLUSIVE, [say.NO_CODEC_COMPARED.format(where=where)])
    lines = [*of_schemes.others]
    if idle := [row for row in compared if row.idle]:
        lines.append(say.NEVER_ENCODED.format(schemes=_list(idle)))
    lines += [_describe_control(row, row.speed) for row in controls if row.speed]
    if diverged := [row for row in cell.rows if row.diverged]:
        lines.append(say.DIVERGED.format(schemes=_list(diverged)))
    return Answer(of_schemes.verdict, of_schemes.lead, [*lines, *conclude(cell, pareto)])


def summarize_cells(cells: Sequence[Cell], verdicts: Sequence[Verdict | None]) -> tuple[str, ...]:
    """Summarize a sweep: in how many cells compression pays, and in which cell it pays most."""
    recommended = [(find_recommended(cell), cell) for cell in cells]
    paying = [(row.speed, row.scheme, cell) for row, cell in recommended if row and row.speed]
    if not paying and set(verdicts) - {None} == {Verdict.NO}:
        return (f"{Verdict.NO}. {say.NO_CELL_PAYS.format(cells=len(cells))}",)
    if not paying:
        return (f"{Verdict.INCONCLUSIVE}. {say.NO_CELL_DECIDED.format(cells=len(cells))}",)
    speed, scheme, cell = max(paying, key=lambda item: item[0].estimate)
    place = make_printable(describe_cell(cell.values))
    sentence = say.CELLS_THAT_PAY.format(
        count=len(paying), cells=len(cells), scheme=scheme, cell=place, speed=_show_ratio(speed)
    )
    return (f"{Verdict.YES}. {sentence}",)


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


def _describe_schemes(cell: Cell, schemes: list[SchemeRow], where: str, weak: Weakened, pareto: Front) -> Answer:
    def select(*groups: str) -> list[SchemeRow]:
        return [row for row in schemes if row.outcome and row.outcome.group in groups]

    good, unsteady, blind, as_fast = select("good"), select("unsteady"), select("no loss"), select("as fast")
    undecided = [row for row in schemes if row in select("open") or row.outcome == WORSE_OPEN]
    worse = [row for row in select("worse") if row.speed_shown == "faster"]
    slower = [row for row in schemes if row in select("not faster") or row.outcome == WORSE_SLOWER]
    if good:
        verdict, lead = _describe_paying(cell, good, where, weak, pareto)
    else:
        seems_slower = _are_probably_slower(schemes)
        headlines = (
            (all(row.speed and row.speed.slower for row in schemes), Verdict.NO, say.ALL_SLOWER),
            (bool(unsteady), Verdict.INCONCLUSIVE, say.INCONCLUSIVE_LOSSES),
            (bool(undecided or blind), Verdict.INCONCLUSIVE, say.SEEMS_SLOWER if seems_slower else say.INCONCLUSIVE),
            (bool(worse), Verdict.NO, say.ONLY_WORSE_LOSSES),
            (bool(as_fast), Verdict.NO, say.NONE_FASTER_BY),
            (True, Verdict.NO, say.NONE_FASTER),
        )
        verdict, headline = next((verdict, sentence) for applies, verdict, sentence in headlines if applies)
        controls = _list_good_controls(cell)
        kind = say.WITH_CODEC if controls else ""
        lead = [headline.format(where=where, margin=_MARGIN, schemes=_list(schemes, _show_gain), kind=kind)]
        if controls:
            names = _list(_sort_by_speed(controls), _show_estimate)
            lead.append(say.FASTER_WITHOUT_CODEC.format(schemes=names, loss=_describe_loss(controls, weak)))
    if worse:
        lead.append(say.WORSE_LOSS.format(schemes=_list(worse, _show_estimate)))
    lists: tuple[tuple[str, list[SchemeRow], Callable[[SchemeRow], str]], ...] = (
        (say.UNSTEADY_LOSS, unsteady, _show_worst_pair),
        (say.NO_LOSS, blind, _show_gain),
        (say.NOT_FASTER, slower if good or worse or blind or unsteady else [], _show_gain),
        (say.AS_FAST, as_fast, _show_gain),
    )
    lines = [sentence.format(schemes=_list(rows, detail), margin=_MARGIN) for sentence, rows, detail in lists if rows]
    if undecided:
        findings = [row.loss if row.outcome == LOSS_OPEN else row.speed for row in undecided]
        lines.append(say.TOO_FEW_REPEATS.format(schemes=_list(undecided), advice=_write_advice(findings)))
    if rare := [row.loss.pairs for row in good if row.loss and weak.has(row.scheme, RARE_FAILURES)]:
        rate = 100 * bound_failures(min(rare))
        lead.append(say.FAILURES_POSSIBLE.format(pairs=min(rare), rate=rate, confidence=100 * FOUND))
    return Answer(verdict, lead, lines)


def _describe_paying(
    cell: Cell, good: list[SchemeRow], where: str, weak: Weakened, pareto: Front
) -> tuple[Verdict, list[str]]:
    """Name the best of the schemes that are faster without a worse loss, then the others.

    If a scheme is not significantly faster than a control without a codec, the algorithm alone may explain the
    scheme's speed.
    """
    loss = _describe_loss(good, weak)
    blind = loss == say.LOSS_WITHOUT_MEANING
    plain, best = list_plain(cell), find_recommended(cell)
    paying = [row for row in good if is_paying_by_codec(row, pareto, plain)]
    others = [row for row in _sort_by_speed(good) if row not in paying]
    lines = _describe_best(cell, best, where, pareto, blind=blind) if best else [say.INCONCLUSIVE.format(where=where)]
    if best and (also := _sort_by_speed([row for row in (*paying, *_list_good_controls(cell)) if row is not best])):
        lines.append(say.ALSO_FASTER.format(schemes=_list(also, _show_estimate), loss=loss))
    if others:
        names = ", ".join(plain)
        lines.append(say.FASTER_BY_ALGORITHM.format(schemes=_list(others, _show_gain), loss=loss, controls=names))
    return Verdict.YES if best else Verdict.INCONCLUSIVE, lines


def _describe_best(cell: Cell, row: SchemeRow, where: str, pareto: Front, *, blind: bool) -> list[str]:
    """Return sentences about the recommended scheme. The loss is not informative if `blind`."""
    assert row.speed and row.loss, "a recommended scheme has a speed and a loss"
    beaten_by, simplest = pareto.beaten_by(row.scheme), find_simplest(cell, pareto)
    casts = [other.scheme for other in cell.rows if other.scheme in simplest and other.kind is SchemeKind.CAST]
    speeds = [other.speed.estimate for other in cell.rows if is_good(other) and other.speed and not other.idle]
    best = say.BEST_OF_SIMPLEST if row.scheme in simplest and row.speed.estimate < max(speeds) else say.BEST
    if beaten_by or casts:
        best = say.BEST_BUT_BEATEN.format(schemes=", ".join(beaten_by)) if beaten_by else say.BEST_SO_FAR
    change = say.CHANGE_BETTER if row.loss.shown == "better" else say.CHANGE_NO_WORSE
    sentence = say.PAYS.format(
        where=where,
        best=best,
        scheme=row.scheme,
        speed=row.speed.estimate,
        confidence=100 * CONFIDENCE,
        interval=bounds(row.speed, "{:.2f}".format),
        difference=between(row.loss, "{:+.4f}".format),
        loss=(say.CHANGE_WITHOUT_MEANING if blind else change).format(margin=100 * cell.criteria.loss_margin),
    )
    caveat = say.NOT_BETTER_THAN_CAST.format(scheme=row.scheme, casts=", ".join(casts))
    return [sentence, caveat] if casts and not beaten_by else [sentence]


def _list_good_controls(cell: Cell) -> list[SchemeRow]:
    return [row for row in cell.rows if row.kind.is_control and row.compared and is_good(row) and not row.idle]


def _describe_loss(rows: list[SchemeRow], weak: Weakened) -> str:
    is_blind = any(weak.has(row.scheme, LEARNT_NOTHING) for row in rows)
    return say.LOSS_WITHOUT_MEANING if is_blind else say.LOSS_NO_WORSE


def _sort_by_speed(rows: list[SchemeRow]) -> list[SchemeRow]:
    return sorted(rows, key=lambda row: -row.speed.estimate if row.speed else 0.0)


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
    kind = f", {row.kind.description}" if row.kind.is_control else ""
    return f" ({row.speed.estimate:.2f} times{kind})" if row.speed else ""


def _show_worst_pair(row: SchemeRow) -> str:
    return f" ({_show_ratio(row.speed)}; worst pair {row.loss.worst:+.4f})" if row.speed and row.loss else ""


def _show_ratio(speed: SpeedFinding) -> str:
    """Format a speed ratio with its interval."""
    return f"{speed.estimate:.2f} times the baseline's speed, {describe_interval(speed)}"
