"""Compare `hpcbench predict` with published runs.

    python benchmarks/predict_published.py [--every N] [--rows] [--tiny]

The runs of benchmarks/published/training.csv are split by source. The constants of hpcbench/predict/constants.py that
are marked "chosen" were set by hand on one half and are tested on the other half. No constant was fitted to the
targets, which are the times of arXiv 2205.05198 (table 5), and the speeds of arXiv 2104.04473 (table 1) and of
Megatron-Core's H100 table. However, the properties of the programs (overlap, blocking messages) were set with knowledge
of these rows. Assumptions about unpublished settings are printed below each table. `--every N` selects every N-th run,
and `--rows` prints all runs.
"""

import argparse
import csv
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from provenance import head
from tiny import parse

from hpcbench.bench.gemm import leave_each_out
from hpcbench.contract.layout import Layout
from hpcbench.contract.training import CommPrecision, Model
from hpcbench.predict import flops
from hpcbench.predict.machine import Machine, make_gpu_machine
from hpcbench.predict.memory import predict_memory
from hpcbench.predict.products import read_published
from hpcbench.predict.program import TrainingProgram, load_program
from hpcbench.predict.program_memory import count_kept_bytes
from hpcbench.predict.step import StepModel
from hpcbench.predict.workload import BASELINE, Workload, make_train

ROWS = Path(__file__).with_name("published") / "training.csv"
FSDP, MEGATRON_DEEPSPEED = load_program("llm-foundry"), load_program("deepspeed")
MEGATRON_2021, MEGATRON_2022 = load_program("megatron-2021"), load_program("megatron-2022")
MEGATRON_CORE = load_program("megatron-core")
ONE_BUCKET = 25e3
"""Message size of a reduction after the backward pass, in megabytes."""


@dataclass(frozen=True)
class Source:
    """Rows of the table, and settings that the table does not contain."""

    name: str
    begins: str
    half: str
    """``chosen on`` or ``checked on``."""
    program: TrainingProgram
    gpu: str
    per_node: int
    node_gbit: float
    note: str = ""
    """Text that the note of a row must contain."""
    zero: int = 0
    row_gpu: str = ""


SOURCES = (
    Source("vTrain, A100", "vTrain ground_truth_multi", "chosen on", MEGATRON_DEEPSPEED, "A100", 8, 800),
    Source("bigscience gpt2, V100", "bigscience gpt2", "chosen on", MEGATRON_DEEPSPEED, "V100 32GB", 4, 200),
    Source(
        "llm-foundry, H100 below 128", "llm-foundry", "chosen on", FSDP, "H100", 8, 3200, "H100 80GB BF16;", 3, "h100"
    ),
    Source("bigscience 176B, A100", "bigscience 176B", "checked on", MEGATRON_DEEPSPEED, "A100", 8, 400, zero=1),
    Source("bigscience tr3m, V100", "bigscience tr3m", "checked on", MEGATRON_DEEPSPEED, "V100 32GB", 4, 200),
    Source("bigscience tr1-13B, V100", "bigscience tr1-13B", "checked on", MEGATRON_DEEPSPEED, "V100 32GB", 4, 200),
    Source("llm-foundry, H100 large", "llm-foundry", "checked on", FSDP, "H100", 8, 3200, "Large Scale", 3, "h100"),
    Source("llm-foundry, A100 80 GB", "llm-foundry", "checked on", FSDP, "A100", 8, 1600, zero=3, row_gpu="a100_80"),
    Source("llm-foundry, A100 40 GB", "llm-foundry", "checked on", FSDP, "A100 40", 8, 1600, zero=3, row_gpu="a100_40"),
)
TABLE_5 = (  # layers, hidden, heads, pp, chunks, micro-batch, batch, step time: full recomputation, selective with SP
    ("22B", 48, 6144, 64, 1, 1, 4, 4, 1.42, 1.10),
    ("175B", 96, 12288, 96, 8, 3, 1, 64, 18.13, 13.75),
    ("530B", 105, 20480, 128, 35, 3, 1, 280, 49.05, 37.83),
    ("1T", 128, 25600, 160, 64, 1, 1, 512, 94.42, 71.49),
)
TABLE_1 = (  # hidden, heads, layers, tp, pp, GPUs, batch, TFLOP/s per GPU including recomputation
    ("1.7B", 2304, 24, 24, 1, 1, 32, 512, 137),
    ("3.6B", 3072, 32, 30, 2, 1, 64, 512, 138),
    ("7.5B", 4096, 32, 36, 4, 1, 128, 512, 142),
    ("18.4B", 6144, 48, 40, 8, 1, 256, 1024, 135),
    ("39.1B", 8192, 64, 48, 8, 2, 512, 1536, 138),
    ("76.1B", 10240, 80, 60, 8, 4, 1024, 1792, 140),
    ("145.6B", 12288, 96, 80, 8, 8, 1536, 2304, 148),
    ("310.1B", 16384, 128, 96, 8, 16, 1920, 2160, 155),
    ("529.6B", 20480, 128, 105, 8, 35, 2520, 2520, 163),
    ("1008B", 25600, 160, 128, 8, 64, 3072, 3072, 163),
)
CORE = (  # hidden, heads, layers, tp, pp, GPUs, batch, model TFLOP/s per GPU
    ("1.7B", 2048, 16, 24, 1, 1, 48, 192, 408.8),
    ("7.1B", 4096, 32, 30, 2, 1, 96, 192, 465.9),
    ("16B", 6144, 48, 32, 4, 1, 192, 192, 489.1),
    ("32B", 7168, 56, 48, 8, 1, 384, 192, 459.6),
    ("70B", 8192, 64, 84, 8, 2, 768, 384, 419.7),
    ("119B", 10240, 80, 92, 8, 4, 1536, 768, 420.5),
    ("177B", 12288, 96, 96, 8, 6, 2304, 1152, 432.8),
    ("314B", 16384, 128, 96, 8, 8, 3072, 1536, 474.4),
    ("462B", 18432, 144, 112, 8, 16, 6144, 3072, 459.9),
)


def workload(
    *,
    layers: int,
    hidden: int,
    heads: int,
    seq_len: int,
    vocab: int,
    layout: Layout,
    micro_batch: int,
    global_batch: int,
    recompute: str,
    program: TrainingProgram,
    per_node: int = 8,
    zero: int = 0,
    precision: str = "bf16",
    wide_gradients: bool = False,
    sequence_parallel: bool = False,
    overlap: bool = False,
) -> Workload:
    """Make a workload from a published run, with the vocabulary padded as in Megatron-LM."""
    padded = -(-vocab // (128 * layout.tp)) * 128 * layout.tp
    train = make_train(
        global_batch=global_batch,
        micro_batch=micro_batch,
        seq_len=seq_len,
        precision=precision,
        recompute=recompute,
        sequence_parallel=sequence_parallel and layout.tp > 1,
        zero=zero,
        schedule="interleaved" if layout.chunks > 1 else "1f1b",
        overlap=overlap,
        bucket_mb=12 * hidden * hidden * 4 / layout.tp / 1e6 if overlap else ONE_BUCKET,
        comm_precision=CommPrecision(gradients="fp32" if wide_gradients else "auto"),
    )
    model = Model(
        name="published",
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocab=padded,
        positions="learned",
        rotary_fraction=0.0,
        parallel_residual=False,
        tied=True,
    )
    return Workload(model, train, layout, per_node, BASELINE, program)


def of_row(row: dict[str, str], source: Source) -> tuple[Workload, Machine] | None:
    """Parse a row of the table, or None if it is incomplete or inconsistent."""
    if not all(row[key] for key in ("seconds_per_iter", "tp", "micro", "layers", "heads", "vocab")):
        return None
    vocab = 250880 if row["vocab"] == "about 250k" else int(row["vocab"])
    tp, pp, dp, chunks = (int(row[key] or 1) for key in ("tp", "pp", "dp", "interleave"))
    micro, batch, layers = int(row["micro"]), int(row["global_batch"]), int(row["layers"])
    if tp * pp * dp != int(row["gpus"]) or batch % (dp * micro) or layers < pp * chunks:
        return None
    if row["recompute"] not in ("none", "full", "selective") or row["precision"].endswith("fp8"):
        return None
    precision = row["precision"].removeprefix("amp_")
    machine = make_gpu_machine(source.gpu, node_gbit=source.node_gbit)
    assert machine
    candidate = workload(
        layers=layers,
        hidden=int(row["hidden"]),
        heads=int(row["heads"]),
        seq_len=int(row["seq"]),
        vocab=vocab,
        layout=Layout(dp=dp, tp=tp, pp=pp, chunks=chunks),
        micro_batch=micro,
        global_batch=batch,
        recompute=row["recompute"],
        program=source.program,
        per_node=source.per_node,
        zero=source.zero,
        precision=precision,
        wide_gradients=source.zero == 1 and precision == "bf16",
        overlap=source.zero == 3,
    )
    return candidate, machine


def errors_of(source: Source, every: int, show: bool) -> Iterator[float]:
    """Return the relative errors of the predicted step times for a source's rows."""
    with ROWS.open(encoding="utf-8", newline="") as stream:
        rows = [
            row
            for row in csv.DictReader(stream)
            if row["source"].startswith(source.begins)
            and source.note in row["note"]
            and row["gpu"].startswith(source.row_gpu)
        ]
    for row in rows[::every]:
        built = of_row(row, source)
        if built is None:
            continue
        seconds, measured = StepModel(*built).run().seconds.value, float(row["seconds_per_iter"])
        if show:
            layout = f"TP{row['tp']} PP{row['pp']} DP{row['dp']} micro {row['micro']}"
            print(f"    {row['model params']} heads {row['heads']} {layout}: {seconds:.2f} s, {measured} s measured")
        yield seconds / measured - 1


def summary(errors: list[float]) -> str:
    """Format the mean and largest error, and the signed median, in percent."""
    if not errors:
        return "no rows"
    sizes = [abs(error) * 100 for error in errors]
    middle = statistics.median(errors) * 100
    return f"{len(errors)} rows, mean {statistics.mean(sizes):.1f} %, median {middle:+.1f} %, worst {max(sizes):.1f} %"


def table_5(a100: Machine, models: int) -> list[float]:
    """Predict the step time in seconds: with full recomputation, and with the paper's method."""
    errors = []
    for name, layers, hidden, heads, pp, chunks, micro, batch, full, selective in TABLE_5[:models]:
        for recompute, measured in (("full", full), ("selective", selective)):
            built = workload(
                layers=layers,
                hidden=hidden,
                heads=heads,
                seq_len=2048,
                vocab=51200,
                layout=Layout(tp=8, pp=pp, chunks=chunks),
                micro_batch=micro,
                global_batch=batch,
                recompute=recompute,
                program=MEGATRON_2022,
                precision="fp16",
                wide_gradients=True,
                sequence_parallel=recompute == "selective",
            )
            seconds = StepModel(built, a100).run().seconds.value
            errors.append(seconds / measured - 1)
            print(f"  {name} {recompute}: {seconds:.2f} s, {measured} s measured, {100 * errors[-1]:+.1f} %")
    return errors


def speeds(
    machine: Machine, rows: tuple[tuple[str, int, int, int, int, int, int, int, float], ...], program: TrainingProgram
) -> list[float]:
    """Return the relative errors of the predicted TFLOP/s per GPU.

    The sources do not state the micro-batch size, so the fastest size that fits in memory is used. Megatron-Core's
    chunks contain one layer.
    """
    core, errors = program is MEGATRON_CORE, []
    vocab, seq_len, recompute = (131072, 4096, "none") if core else (51200, 2048, "full")
    for name, hidden, heads, layers, tp, pp, gpus, batch, measured in rows:
        dp = gpus // tp // pp
        best = 0.0
        for micro in (1, 2, 4, 8, 16):
            chunks = layers // pp if core and pp > 1 else 1
            if (
                batch % (micro * dp)
                or batch // dp // micro % (pp if chunks > 1 else 1)
                or (layers // pp * pp != layers and chunks > 1)
            ):
                continue
            built = workload(
                layers=layers,
                hidden=hidden,
                heads=heads,
                seq_len=seq_len,
                vocab=vocab,
                layout=Layout(dp=dp, tp=tp, pp=pp, chunks=chunks),
                micro_batch=micro,
                global_batch=batch,
                recompute=recompute,
                program=program,
                zero=1 if core else 0,
                sequence_parallel=core,
                overlap=core,
                wide_gradients=core,
            )
            if micro > 1 and core and not predict_memory(built, machine.device.memory_bytes).fits:
                continue
            seconds = StepModel(built, machine).run().seconds.value
            count = flops.count_hardware_flops(
                layers=layers, hidden=hidden, vocab=vocab, seq_len=seq_len, recompute=recompute
            )
            best = max(best, count * batch / gpus / seconds / 1e12)
        errors.append(measured / best - 1)
        print(f"  {name}: {best:.1f} TFLOP/s, {measured} measured, {100 * errors[-1]:+.1f} % of time")
    return errors


def states() -> None:
    """Print the model states of GPT-3 175B, and the memory that selective recomputation saves (arXiv 2205.05198)."""
    parameters = flops.count_parameters(
        layers=96, hidden=12288, vocab=51200, seq_len=2048, positions="learned", tied=True
    )
    total = 16.0 * parameters
    print(f"model states of GPT-3 175B at 16 bytes a parameter: {total / 1e12:.2f} TB, 2.8 published")
    for name, hidden, heads, saved in (("GPT-3 175B", 12288, 96, 70), ("MT-NLG 530B", 20480, 128, 65)):
        built = workload(
            layers=8,
            hidden=hidden,
            heads=heads,
            seq_len=2048,
            vocab=51200,
            layout=Layout(tp=8),
            micro_batch=1,
            global_batch=1,
            recompute="none",
            program=MEGATRON_2022,
            precision="fp16",
            sequence_parallel=True,
        )
        full, slim = (count_kept_bytes(built, recompute=recompute) for recompute in ("none", "selective"))
        error = 100 * (slim / full / (1 - saved / 100) - 1)
        print(
            f"activations of {name}, TP 8 with SP: {full / 2**20:.0f} MiB a layer, {slim / 2**20:.0f} with selective "
            f"recomputation: {100 * (1 - slim / full):.1f} % saved, {saved} % published, {error:+.1f} % of the bytes"
        )


def main() -> None:
    """Predict, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--every", type=int, default=1, help="take each N-th run of a source")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--targets", type=int, default=10, help="number of rows of each target")
    options = parse(parser, every=40, targets=2)
    print(*head(Path(__file__)), sep="\n", flush=True)
    for family in ("V100", "A100", "H100"):
        table = read_published(family)
        assert table
        left_out = leave_each_out(dict(table.points)["fwd"], table.units, least_flops=1e11)
        left = [abs(error) for error in left_out][:: options.every]
        print(f"products {family}: leave-one-out error above 1e11 FLOP, mean {100 * statistics.mean(left):.1f} %")
    for half in ("chosen on", "checked on"):
        together: list[float] = []
        for source in SOURCES:
            if source.half == half:
                errors = list(errors_of(source, options.every, options.rows))
                together += errors
                print(f"{half} {source.name}: {summary(errors)}", flush=True)
        print(f"{half}, all: {summary(together)}", flush=True)
    a100, h100 = (
        make_gpu_machine("A100", node_gbit=1600),
        make_gpu_machine("H100", node_gbit=3200),
    )
    assert a100 and h100
    print("arXiv 2205.05198, table 5 (layouts of its table 3, recalled):")
    print(f"  target 3 % and 7 %: {summary(table_5(a100, options.targets))}", flush=True)
    print("arXiv 2104.04473, table 1 (micro-batch: the best; one chunk a stage: assumed):")
    print(f"  target 10 % each: {summary(speeds(a100, TABLE_1[: options.targets], MEGATRON_2021))}", flush=True)
    print("Megatron-Core, H100 (micro-batch: the best that fits; one layer a chunk, ZeRO-1: assumed):")
    print(f"  target 10 % each: {summary(speeds(h100, CORE[: options.targets], MEGATRON_CORE))}", flush=True)
    states()


if __name__ == "__main__":
    main()
