"""Diagnosis of hpcbench's own runs, from the traffic and times in their logs."""

from collections.abc import Iterator
from pathlib import Path

from hpcbench.collect.submission import load
from hpcbench.contract.settings import LoggedSettings
from hpcbench.diagnose.calls import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, FLOATS, MESSAGE, REDUCE_SCATTER
from hpcbench.diagnose.diagnosis import Diagnosis, Gain, Kind, KindRow
from hpcbench.diagnose.gains import CODECS, CPU_SPEED, FREE, GPU_SPEED, break_even_gbit, saved_us
from hpcbench.errors import UserError
from hpcbench.report.measures import Measures, is_gpu, measure
from hpcbench.report.traffic import TrafficSum

_CONTENTS = {"GRAD": "gradients", "PARAM": "parameters", "ACT": "activations"}


def is_submission(path: Path) -> bool:
    """Return whether a directory is an hpcbench submission."""
    return (path / "submission.json").is_file()


def diagnose_submission(root: Path, codec_speed: float | None = None) -> list[tuple[str, Diagnosis]]:
    """For each cell, diagnose the first completed run that uses the library's own collectives without a codec.

    Parameters
    ----------
    root
        Directory of the submission.
    codec_speed
        Speed of encoding and decoding, in GB/s of uncompressed data. The default is an assumption.

    Returns
    -------
    list
        Pairs of cell description and diagnosis.

    Raises
    ------
    UserError
        No such run has completed, or the logs do not contain call times.
    """
    diagnoses: dict[str, Diagnosis] = {}
    for run in load(root, {}).runs:
        cell = ", ".join(f"{key}={value}" for key, value in run.cell.items())
        is_plain = run.settings.scheme.algorithm == "native" and not run.settings.scheme.process_changes
        if not is_plain or run.state != "completed" or cell in diagnoses:
            continue
        measures = measure(run)
        if measures.time is not None and measures.step_seconds:
            diagnoses[cell] = _diagnose(measures, codec_speed)
    if not diagnoses:
        raise UserError(
            f"{root}: no run with `algorithm: native` has completed and logged the time of its calls: to diagnose "
            "a program, use `hpcbench diagnose --run -- COMMAND`"
        )
    return list(diagnoses.items())


def _diagnose(measures: Measures, codec_speed: float | None) -> Diagnosis:
    run, time, seconds = measures.run, measures.time, measures.step_seconds
    assert run.log is not None and time is not None and seconds
    on_gpu = is_gpu(run)
    speed = codec_speed or (GPU_SPEED if on_gpu else CPU_SPEED)
    ranks = run.settings.ranks or 1
    rows = [_make_row(channel, run.settings, measures.steps * ranks) for channel in measures.channels]
    rows.sort(key=lambda row: (-row.exposed, -row.seconds))
    return Diagnosis(
        paths=(run.log.path,),
        ranks=(None,),
        world=ranks,
        steps=measures.steps,
        step_seconds=seconds,
        is_gpu=on_gpu,
        computing=time.compute / time.step,
        exposed=sum(row.exposed for row in rows) / seconds,
        has_waiting=False,
        rows=tuple(rows),
        gains=tuple(_list_gains(rows, seconds, speed)),
        codec_speed=speed,
        timeline=(),
        from_traces=False,
    )


def _make_row(channel: TrafficSum, settings: LoggedSettings, n_steps_and_ranks: int) -> KindRow:
    operation, size = _find_operation(channel, settings)
    dtype = _find_dtype(channel, settings)
    sent = channel.message_bytes / n_steps_and_ranks
    share = (size - 1) / size if size and size > 1 else 1.0
    factor = {ALL_REDUCE: 2 * share, REDUCE_SCATTER: share, ALL_GATHER: share, ALL_TO_ALL: share}.get(operation, 1.0)
    return KindRow(
        kind=Kind(
            dimension=channel.dimension,
            operation=operation,
            dtype=dtype,
            description="",
            group_size=size,
            compressible=channel.dimension != "EXACT" and dtype in FLOATS,
        ),
        calls=channel.calls / n_steps_and_ranks,
        message_bytes=sent / factor,
        wire_bytes=sent,
        seconds=channel.transfer_s,
        exposed=channel.exposed_s,
        waiting=None,
        exposed_waiting=None,
        transfer=channel.transfer_s,
        exposed_transfer=channel.exposed_s,
    )


def _find_operation(channel: TrafficSum, settings: LoggedSettings) -> tuple[str, int | None]:
    """Return the operation and group size of a channel, for layouts with tensor mode 1d."""
    layout, zero = settings.layout, settings.train.zero or 0
    sizes = {
        "DP": (REDUCE_SCATTER if zero else ALL_REDUCE, layout.dp),
        "ZERO": (ALL_GATHER, layout.dp),
        "TP": (ALL_REDUCE, layout.tp),
        "SP": (ALL_GATHER, layout.tp),
        "CP": (MESSAGE, layout.cp),
        "PP": (MESSAGE, layout.pp),
        "EP": (ALL_TO_ALL, layout.ep),
    }
    return sizes.get(channel.dimension, (ALL_REDUCE, settings.ranks))


def _find_dtype(channel: TrafficSum, settings: LoggedSettings) -> str:
    """Return the number format of a channel's messages. Activation gradients count as activations."""
    train = settings.train
    content = _CONTENTS.get(channel.kind or "", "gradients")
    if channel.kind == "GRAD" and channel.dimension not in ("DP", "ZERO"):
        content = "activations"
    chosen = getattr(train.comm_precision, content, "auto")
    return str(train.precision if chosen in ("auto", None) else chosen)


def _list_gains(rows: list[KindRow], seconds: float, speed: float) -> Iterator[Gain]:
    """Yield the maximum gain of each codec for each dimension."""
    for dimension in dict.fromkeys(row.kind.dimension for row in rows if row.kind.compressible):
        loads = [row.load for row in rows if row.kind.dimension == dimension and row.kind.compressible]
        for codec in (*CODECS, FREE):
            saved = sum(saved_us(load, codec, speed) for load in loads) / 1e6
            largest = max(loads, key=lambda load: load.exposed_us)
            limit = break_even_gbit(largest, codec, speed) if codec.has_cost else None
            yield Gain(dimension, codec.name, seconds / max(seconds - saved, 1e-15), limit)
