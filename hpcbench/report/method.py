"""What the sentences of an answer rest on: pairs, tests, margins, and what was odd in the surroundings."""

from hpcbench.contract.events import Configuration
from hpcbench.contract.scheme import assignments
from hpcbench.report.compare import Cell, Row, paired
from hpcbench.report.equal_time import WINDOW
from hpcbench.report.findings import LEVEL
from hpcbench.report.front import Front
from hpcbench.report.measures import own_environment
from hpcbench.report.outliers import odd_baselines, slow_hosts
from hpcbench.report.verdicts import NOT_FASTER, WORSE_SLOWER


def basis(cell: Cell, base: Row, front: Front) -> list[str]:
    """Sentences on the method, and on what a reader must know of the surroundings."""
    return [*_basis(cell, base, front), *_odd(cell, base)]


def _basis(cell: Cell, base: Row, front: Front) -> list[str]:
    sentences = [*_method(cell), *_of_duels(front)]
    slow = [row for row in cell.rows if row.outcome in (NOT_FASTER, WORSE_SLOWER)]
    if any(row.speed and not row.speed.slower for row in slow):
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
    configuration = log.said(Configuration) if log else Configuration.read({})
    uniform, unigram = configuration.valid_loss_uniform, configuration.valid_loss_unigram
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


def _of_duels(front: Front) -> list[str]:
    """How schemes were compared with each other."""
    tested = sum(bool(duel.speed and duel.speed.at_slower) for duel in front.duels)
    if not tested:
        return []
    pairs = f"the {tested} pairs of schemes" if tested > 1 else "the two schemes"
    return [f"Schemes against each other: speeds and losses of {pairs} are one family ({100 * LEVEL:.0f} %, Holm)."]


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
