"""Tests of logs with launcher and rank prefixes, and with wrapped lines. All complete lines are parsed."""

import textwrap

import pytest
from mangling import BY_LINE_END, DIALECT, EVALUATIONS, LOGS, TRUTH, lines_of, quantities, read_as, within

from hpcbench.collect.dialects.deepspeed import DEEPSPEED
from hpcbench.collect.dialects.megatron import MEGATRON
from hpcbench.collect.dialects.prefix import plain, split
from hpcbench.collect.dialects.torchtitan import TORCHTITAN
from hpcbench.contract.events import Evaluation

PREFIXES = [
    "[1,3]<stdout>:",
    "[prterun-node-77@1,3]<stdout>:",
    "3: ",
    "  3: ",
    "[default3]:",
    "[rank3]: ",
    "[rank3]",
    "[3] ",
    "[Rank 3] ",
    "node-7.cluster: [default3]:",
    "2026-08-20T10:00:00.123Z [3] ",
    "Thu Aug 20 10:00:00 2026[1,3]<stdout>:",
    "\x1b[36m(TrainWorker pid=77, ip=10.0.0.3)\x1b[0m [rank3]:",
    "[2026-08-20 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 3] ",
]
NEW = sorted(set(LOGS) - BY_LINE_END)
# If the logger's prefix moves a line's name beyond the width, or fields follow its end mark, a value is lost.
LOSE = {"deepspeed-engine", "deepspeed-trainer", "deepspeed-pipeline", "megatron-deepspeed"}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_contains_the_rank(prefix: str) -> None:
    assert split(plain(prefix) + "loss: 1.5") == (3, "loss: 1.5")


@pytest.mark.parametrize(
    "line", ["loss: 1.5", "step: 3", "lm_loss: 3", "number of nan iterations:   0 |", "| lr: 1", "1.5 |", "[1,2]"]
)
def test_a_field_is_not_a_prefix(line: str) -> None:
    assert split(line) == (None, line)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", LOGS)
def test_prefixes_and_other_line_ends_make_no_difference(name: str, prefix: str) -> None:
    log = read_as(DIALECT[name], "".join(f"{prefix}{line}\r\n" for line in lines_of(name)).encode())
    read = quantities(log)
    if name.startswith("torchtitan"):
        # All lines now come from one rank, so the first line of a step is used.
        assert read.keys() == TRUTH[name].keys()
    else:
        assert read == TRUTH[name]
    assert [
        (event.step, event.split, event.loss) for event in log.events if isinstance(event, Evaluation)
    ] == EVALUATIONS[name]


@pytest.mark.parametrize("name", LOGS)
def test_lines_glued_together_are_separated(name: str) -> None:
    rows = [line if DIALECT[name].heads(plain(line)) else f"{line}\n" for line in lines_of(name)]
    read = quantities(read_as(DIALECT[name], "".join(rows).encode() + b"\n"))
    assert within(read, TRUTH[name])
    if name in NEW:
        assert read == TRUTH[name]


def hard(line: str, width: int) -> list[str]:
    return [line[i : i + width] for i in range(0, len(line), width)] or [""]


@pytest.mark.parametrize("width", [80, 132])
@pytest.mark.parametrize("name", LOGS)
def test_a_terminal_that_wraps(name: str, width: int) -> None:
    pieces = [piece for line in lines_of(name) for piece in hard(plain(line), width)]
    read = quantities(read_as(DIALECT[name], "\n".join([*pieces, ""]).encode()))
    assert within(read, TRUTH[name])
    if name in NEW and name not in LOSE:
        assert read == TRUTH[name]


@pytest.mark.parametrize("name", NEW)
def test_a_logger_that_wraps_at_words(name: str) -> None:
    pieces = [
        f"[default3]:{piece}"
        for line in lines_of(name)
        for piece in textwrap.wrap(split(plain(line))[1], 100, subsequent_indent="    ", break_long_words=False)
    ]
    read = quantities(read_as(DIALECT[name], "\n".join([*pieces, ""]).encode()))
    assert read.keys() == TRUTH[name].keys()
    if name != "megatron-deepspeed" and not name.startswith("torchtitan"):
        assert read == TRUTH[name]


LINE = (
    " [2026-08-20 08:00:12.345678] iteration {step:8d}/      10 | consumed samples:          640 |"
    " elapsed time per iteration (ms): 801.2 | lm loss: {loss:.6E} | grad norm: 8.765 |"
    " number of skipped iterations:   {skipped} | number of nan iterations:   0 |"
)


def test_wrapped_lines_of_ranks_that_interleave() -> None:
    ranks = {rank: hard(LINE.format(step=5, loss=10 + rank, skipped=0), 80) for rank in (2, 0, 1)}
    rows = [f"{rank}: {ranks[rank][i]}" for i in range(len(ranks[0])) for rank in ranks]
    log = read_as(MEGATRON, "\n".join([*rows, ""]).encode())
    assert [record.loss for record in log.steps.values()] == [10.0]
    assert log.steps[5].line == 2
    assert [note.why for note in log.notes] == [
        "lines of other ranks that were skipped: 2 (the line of rank 0 is used, or the first line without one)"
    ]


def test_without_rank_0_the_first_rank_is_used_and_skipped_steps_count_once() -> None:
    rows = [f"[default{rank}]:{LINE.format(step=s, loss=s + rank, skipped=2)}" for s in (1, 2) for rank in (3, 1, 2)]
    log = read_as(MEGATRON, "\n".join([*rows, ""]).encode())
    assert [(record.loss, record.skipped) for record in log.steps.values()] == [(4.0, 2), (5.0, 4)]


def test_a_piece_that_is_missing_joins_nothing() -> None:
    first, _, *last_pieces = hard(LINE.format(step=5, loss=10, skipped=0), 80)
    log = read_as(MEGATRON, "\n".join([first, *last_pieces, LINE.format(step=6, loss=9, skipped=0), ""]).encode())
    assert [record.step for record in log.steps.values()] == [6]
    assert [(note.line, note.why) for note in log.notes] == [(1, "the line of step 5 is truncated")]


def test_a_loss_of_another_stage_is_filled_in() -> None:
    rows = [
        "[rank0]:[titan] step:  7  loss: -1.00000  grad_norm:  1.0000  memory:  1.00GiB(1.00%)  tps: 5  mfu: 1.00%",
        "[rank3]:[titan] step:  7  loss:  4.50000  grad_norm:  2.0000  memory:  2.00GiB(1.00%)  tps: 6  mfu: 1.00%",
    ]
    for order in (rows, rows[::-1]):
        record = read_as(TORCHTITAN, "\n".join([*order, ""]).encode()).steps[7]
        assert (record.loss, record.gradient_norm, record.tokens_per_s_per_rank) == (4.5, 1.0, 5.0)


def test_an_evaluation_that_all_ranks_print_is_one() -> None:
    row = "[rank{rank}]:[titan] validate step: 20  loss: {loss}  memory:  1.00GiB(1.00%)  tps: 5"
    rows = [row.format(rank=rank, loss=loss) for rank, loss in ((1, "4.5"), (0, "4.25"), (2, "4.5"), (3, "-1.0"))]
    log = read_as(TORCHTITAN, "\n".join([*rows, ""]).encode())
    assert [(event.line, event.loss) for event in log.events if isinstance(event, Evaluation)] == [(2, 4.25)]


def test_overflows_that_all_ranks_print_count_once() -> None:
    row = "[deepspeed] OVERFLOW! Rank {rank} Skipping step. Attempted loss scale: 4.0, reducing to 2.0"
    step = "steps: {step} loss: 1.0000 iter time (s): 1.000 samples/sec: 1.000"
    rows = [step.format(step=1), *(row.format(rank=rank) for rank in (1, 0, 2, 1, 0, 2)), step.format(step=2)]
    log = read_as(DEEPSPEED, "\n".join([*rows, ""]).encode())
    assert [record.skipped for record in log.steps.values()] == [None, 2]
