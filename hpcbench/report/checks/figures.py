"""Checks of rates, operations and utilization, which can be computed from each other."""

from collections.abc import Iterator

from hpcbench.contract.events import Configuration
from hpcbench.contract.text import make_printable
from hpcbench.predict import flops
from hpcbench.report.basis import compute_flops_by_formula, keep_finite
from hpcbench.report.checks.relations import TOLERANCE, CheckedRun, Mismatch, Relation

_FLOPS = {
    "model_flops_per_rank": "model FLOP/s",
    "hardware_flops_per_rank": "hardware FLOP/s",
    "unlabelled_flops_per_rank": "FLOP/s",
}


def check_rates(subject: CheckedRun) -> Iterator[str]:
    """Compare printed rates with the work and time of a step."""
    basis = subject.basis
    # Some frameworks increase the batch size and print it in each line.
    over = "samples" if basis.batch is None and subject.log.steps.column("samples") else None
    batch = basis.batch or (1 if over else None)
    ranks = basis.ranks
    tokens = batch * basis.seq_len if batch and basis.seq_len else None
    work: dict[str, tuple[str, float | None]] = {
        "samples/s": ("samples_per_s", batch),
        "tokens/s": ("tokens_per_s", tokens),
        "tokens/s of a rank": ("tokens_per_s_per_rank", tokens / ranks if tokens and ranks else None),
    }
    if not basis.work_varies:
        work |= {
            "model FLOP/s": ("model_flops_per_rank", _compute_flops(subject, basis.model_flops, batch)),
            "hardware FLOP/s": ("hardware_flops_per_rank", _compute_flops(subject, basis.hardware_flops, batch)),
            "FLOP/s": ("unlabelled_flops_per_rank", None),
        }
    for label, (column, expected) in work.items():
        mismatch = subject.mismatch(Relation(column, times="seconds", over=over, expected=expected))
        if mismatch:
            yield _describe_mismatch(subject, label, mismatch, "the value that the step times imply")


def check_ratios(subject: CheckedRun) -> Iterator[str]:
    """Check numbers whose ratio must be the same at every step."""
    for label, column, over, expected in (
        ("tokens/s over tokens/s of a rank", "tokens_per_s", "tokens_per_s_per_rank", subject.basis.ranks),
        ("consumed tokens over consumed samples", "consumed_tokens", "consumed_samples", subject.basis.seq_len),
        ("hardware over model FLOP/s", "hardware_flops_per_rank", "model_flops_per_rank", None),
    ):
        if column == "hardware_flops_per_rank" and subject.basis.work_varies:
            continue
        mismatch = subject.mismatch(Relation(column, over=over, expected=expected))
        if mismatch:
            figures = f"{mismatch.value:.4g}, but {mismatch.expected:.4g} {_describe_source(mismatch)}"
            yield subject.at(mismatch.line, f"{label} is {figures}")


def check_conventions(subject: CheckedRun) -> Iterator[str]:
    """Compare the stated work per sample and unlabeled FLOP/s with the formulas for the model's shape."""
    basis = subject.basis
    if basis.shape is None:
        return
    # If recomputation is not stated, all kinds are possible.
    modes: list[str | int] = ["none", "selective", "full"] if basis.recompute is None else [basis.recompute]
    mode = "" if basis.recompute is None else f" with recompute: {basis.recompute}"
    hardware = [flops.count_hardware_flops(**basis.shape, recompute=value) for value in modes]
    neox = [flops.count_neox_flops(**basis.shape, recompute=value) for value in modes]
    event = subject.log.event(Configuration)
    for name, expected, given in (
        ("model_flops_per_sample", [flops.count_model_flops(**basis.shape)], ""),
        ("hardware_flops_per_sample", hardware, mode),
        ("neox_flops_per_sample", neox, mode),
    ):
        stated = keep_finite(getattr(event, name, None))
        if stated and event and not any(abs(stated / value - 1) <= TOLERANCE for value in expected):
            figures = f"{stated:.4g}, but {expected[-1]:.4g} according to the formula for the model's shape{given}"
            yield subject.at(event.line, f"{name} is {figures}")
    if not basis.batch or not basis.ranks:
        return
    formulas = compute_flops_by_formula(basis.shape)
    mismatches = [
        subject.mismatch(
            Relation("unlabelled_flops_per_rank", "seconds", None, _compute_flops(subject, work, basis.batch))
        )
        for work in formulas.values()
    ]
    if all(mismatches):
        nearest = min((value for value in mismatches if value), key=lambda value: abs(value.ratio - 1))
        yield _describe_mismatch(subject, "FLOP/s", nearest, "the closest result of a formula for the model's shape")


def check_peaks(subject: CheckedRun) -> Iterator[str]:
    """Compare FLOP/s with the chip's peak and with the printed utilization."""
    peak, steps = subject.basis.peak, subject.log.steps
    for column, label in _FLOPS.items():
        most = max(steps.column(column), default=0.0)
        if peak and most > peak:
            line = _find_line(subject, column, most)
            chip = f" of a rank's share of {make_printable(subject.basis.chip, 60)}" if subject.basis.chip else ""
            yield subject.at(
                line,
                f"{most:.4g} {label} per rank is impossible: the dense peak{chip} is {peak:.4g} ({most / peak:.0%})",
            )
    for column, claim in (("model_flops_per_rank", "mfu"), ("hardware_flops_per_rank", "hfu")):
        most = max(steps.column(claim), default=0.0)
        if most > 1:
            yield subject.at(
                _find_line(subject, claim, most), f"{claim.upper()} {most:.1%} is impossible: the maximum is 100 %"
            )
        mismatch = subject.mismatch(Relation(claim, over=column, expected=1 / peak if peak else None))
        if mismatch:
            figures = f"{mismatch.printed:.4g} is printed, but {mismatch.recomputed:.4g} {_describe_source(mismatch)}"
            yield subject.at(mismatch.line, f"{claim.upper()}: {figures}, from FLOP/s and the chip's peak")


def check_consumed(subject: CheckedRun) -> Iterator[str]:
    """Compare the consumed samples with batch size times steps."""
    sizes = {subject.basis.batch} if subject.basis.batch else set(subject.log.steps.column("samples"))
    if len(sizes) != 1:
        return  # the batch is unknown or grows
    (batch,) = sizes
    rows = subject.log.steps.columns("line", "step", "consumed_samples")
    # NeMo counts steps from 0, and includes the current step's samples.
    before = int(subject.log.dialect == "NeMo")
    for line, number, seen in rows:
        step = number + before
        if seen != step * batch:
            text = (
                f"the log reports {seen:.0f} consumed samples, but {step:.0f} steps with {batch:.0f} samples each "
                f"consume {step * batch:.0f}"
            )
            yield subject.at(int(line), text)
            return


def _compute_flops(subject: CheckedRun, per_sample: float | None, batch: int | None) -> float | None:
    """Return the operations per rank and step."""
    return per_sample * batch / subject.basis.ranks if per_sample and batch and subject.basis.ranks else None


def _describe_mismatch(subject: CheckedRun, label: str, mismatch: Mismatch, what: str) -> str:
    figures = f"{mismatch.printed:.4g} printed, {mismatch.recomputed:.4g} {_describe_source(mismatch)}"
    convention = _name_convention(subject, label, mismatch)
    return subject.at(
        mismatch.line, f"the {label} printed are {mismatch.ratio:.3g} times {what}: {figures}{convention}"
    )


def _name_convention(subject: CheckedRun, label: str, mismatch: Mismatch) -> str:
    """Name the formula that yields the printed value, if any."""
    basis = subject.basis
    per_sample = {"model FLOP/s": basis.model_flops, "hardware FLOP/s": basis.hardware_flops}.get(label)
    if basis.shape is None or per_sample is None:
        return ""
    for name, work in compute_flops_by_formula(basis.shape).items():
        if abs(per_sample * mismatch.ratio / work - 1) <= TOLERANCE:
            return f", which is the result of {name}"
    return ""


def _find_line(subject: CheckedRun, column: str, value: float) -> int:
    return int(next(line for line, figure in subject.log.steps.columns("line", column) if figure == value))


def _describe_source(mismatch: Mismatch) -> str:
    source = "recomputed" if mismatch.reference is None else f"according to line {mismatch.reference}"
    return f"{source} ({mismatch.count} of {mismatch.of} steps)"
