"""Tests that a model on several ranks matches one process: loss, gradients and weights by global name.

The oracle runs in fp64, where rounding errors are 1e-16, far smaller than any error in a sum, scale or slice. The cases
are in cases.py. docs/explanation/parity.md explains the tolerances and states which results are bitwise identical.
"""

from itertools import combinations
from pathlib import Path

import faults
import pytest
from cases import (
    AXES,
    FREE,
    MOST_RANKS,
    SUITES,
    TOGETHER,
    grid,
    is_valid,
    run_of,
    select_once,
    select_rest,
)
from covering import cover, every_case, list_combinations
from tiers import Tiers

WORKER = Path(__file__).with_name("parity_worker.py")
TIERS = {suite: Tiers(list(SUITES[suite]())) for suite in ("grid", "bit_equal", "lossless", "lossy", "overlapped")}
PAGE = Path(__file__).parents[2] / "docs/reference/planted-faults.md"

TOLERANCE = 1e-12
"""Tolerance of loss, norm and gradients, relative to the norm of the reference.

The tolerance covers sums with a few thousand roundings of 1e-16.
"""

WEIGHT_TOLERANCE = 1e-9
"""Tolerance for Adam, which divides a gradient by its own size.

If a gradient consists only of rounding errors (the bias of the keys), the update is rounding / eps, i.e. 1e-18 / 1e-8
of a learning rate. The tensor starts at zero and grows to three learning rates.
"""


def assert_same(result):
    for name in ("loss", "norm", "gradients", "evaluation"):
        assert result[name] <= TOLERANCE, f"{name} off by {result[name]:.2e} ({result['worst'].get(name)})"
    assert result["weights"] <= WEIGHT_TOLERANCE, result["worst"]["weights"]
    assert_replicas_agree(result)


def assert_replicas_agree(result):
    assert result["replicas"] == 0.0
    assert result["padding"] == 0.0
    assert result["agree"]
    assert result["same_tokens"]


def assert_bits(result):
    assert result["gradients"] == result["weights"] == result["loss"] == result["evaluation"] == 0.0
    assert_replicas_agree(result)


def assert_lossy(result):
    assert result["gradients"] > 1e-3, "the lossy codec was never used"
    assert_replicas_agree(result)


def assert_detected(sound, faulty, seen_in):
    """Check that the fault changes a quantity, and that the comparison with one process fails."""
    assert_same(sound)
    assert faulty[seen_in] > 1e-6
    with pytest.raises(AssertionError):
        assert_same(faulty)


def assert_residuals(rank):
    few, many = rank["buckets"]
    assert many > few, "the buckets must differ"
    assert rank["parameters"] and rank["equal"]
    assert rank["sizes"] > 0, "without residuals the test proves nothing"
    assert rank["after_skipping"] == 0.0


def assert_skipped(rank):
    assert rank["skipped"] == 1
    assert rank["unchanged"]


def assert_bytes(result):
    assert result["sent"] == result["predicted"], "by rank and channel"


def find_result(mpi_results, suite, name):
    part = TIERS[suite].part(name) if suite in TIERS else ()
    results = mpi_results(MOST_RANKS, WORKER, suite, *part)
    (match,) = (result for result in results if result["name"] == name)
    return match


def of_fault(mpi_results, scene, fault):
    """Return every rank's result."""
    reports = [rank for rank in mpi_results(MOST_RANKS, WORKER, scene) if rank["fault"] == fault]
    assert len(reports) == MOST_RANKS
    return reports


@pytest.mark.parametrize("name", TIERS["grid"].names)
def test_trains_like_one_process(mpi_results, name):
    assert_same(find_result(mpi_results, "grid", name))


@pytest.mark.parametrize("name", TIERS["grid"].names)
def test_message_bytes_equal_the_closed_forms(mpi_results, name):
    assert_bytes(find_result(mpi_results, "grid", name))


def test_the_part_of_the_grid_in_make_test_has_every_value():
    few, others = select_once(grid()), select_rest(grid())
    assert len(few) < len(grid()) / 3
    for name in (*AXES, *FREE):
        assert values(few, [name]) == values(grid(), [name])
    assert not {comparison.name for comparison in few} & {comparison.name for comparison in others}
    assert len(few) + len(others) == len(grid())


def test_every_pair_of_settings_and_every_layout_is_in_the_grid():
    had = {group: values(grid(), group) for group in (*combinations([*AXES, *FREE], 2), *TOGETHER)}
    possible = [case for case in every_case(AXES, is_valid) if run_of(case).ranks > 1]
    for group, met in had.items():
        assert met == list_combinations(group, possible, AXES, FREE), group


def values(comparisons, group):
    return {tuple(comparison.settings[name] for name in group) for comparison in comparisons}


def test_a_cover_is_complete_and_deterministic():
    axes = {"a": (1, 2, 3), "b": (1, 2, 3), "c": (1, 2, 3), "d": (1, 2)}
    cases = every_case(axes, lambda case: (case["a"], case.get("b")) != (2, 3))
    assert len(cases) == 48
    taken = cover(cases)
    assert taken == cover(cases)
    for pair in combinations(axes, 2):
        assert {tuple(case[name] for name in pair) for case in taken} == {
            tuple(case[name] for name in pair) for case in cases
        }
    assert len(taken) <= 12  # the pairs of two axes with three values require nine


@pytest.mark.parametrize("name", TIERS["bit_equal"].names)
def test_changes_no_bit(mpi_results, name):
    assert_bits(find_result(mpi_results, "bit_equal", name))


@pytest.mark.parametrize("name", TIERS["lossless"].names)
def test_lossless_codec_gives_the_bits_of_the_identity(mpi_results, name):
    assert_bits(find_result(mpi_results, "lossless", name))


@pytest.mark.parametrize("name", TIERS["overlapped"].names)
def test_overlap_changes_no_bit(mpi_results, name):
    result = find_result(mpi_results, "overlapped", name)
    during, after = result["early"]
    assert during > 0 and after == 0, "number of reductions that began before the end of the backward pass"
    assert_bits(result)


@pytest.mark.parametrize("name", TIERS["lossy"].names)
def test_replicas_agree_under_a_lossy_scheme(mpi_results, name):
    assert_lossy(find_result(mpi_results, "lossy", name))


def test_residuals_belong_to_parameters_and_end_with_a_skipped_step(mpi_results):
    for rank in of_fault(mpi_results, "residuals", None):
        assert_residuals(rank)


def test_an_overflow_of_one_rank_is_detected_by_all(mpi_results):
    for rank in of_fault(mpi_results, "overflow", None):
        assert_skipped(rank)


ASSERTIONS = {
    faults.ONE_PROCESS: assert_same,
    faults.LOSSY: assert_lossy,
    faults.LOSSLESS: assert_bits,
    faults.RESIDUALS: assert_residuals,
    faults.OVERFLOW: assert_skipped,
    faults.BYTES: assert_bytes,
}
SCENES = {faults.RESIDUALS: "residuals", faults.OVERFLOW: "overflow"}


@pytest.mark.parametrize("name", faults.FAULTS)
def test_planted_fault_is_detected(mpi_results, name):
    fault = faults.FAULTS[name]
    check = ASSERTIONS[fault.red]
    if fault.settings is None:
        sound, faulty = (of_fault(mpi_results, SCENES[fault.red], which) for which in (None, name))
    else:
        planted = next(comparison for comparison in SUITES["faulty"]() if comparison.fault == name)
        names = (planted.name.removesuffix(f"-fault={name}"), planted.name)
        sound, faulty = ([find_result(mpi_results, "faulty", which)] for which in names)
    for result in sound:
        check(result)
    assert any(changed[fault.seen_in] != result[fault.seen_in] for changed, result in zip(faulty, sound, strict=True))
    with pytest.raises(AssertionError):
        for result in faulty:
            check(result)


def test_a_run_detects_that_its_replicas_differ(mpi_results):
    (planted,) = (comparison.name for comparison in SUITES["faulty"]() if comparison.fault == "own_piece_exact")
    assert not find_result(mpi_results, "faulty", planted)["agree"]


def test_the_page_lists_the_faults():
    assert {fault.red for fault in faults.FAULTS.values()} <= globals().keys()
    for source in faults.ELSEWHERE:
        described = faults.describe_faults(Path(__file__).parents[1] / source)
        assert described and all(described.values()), f"{source}: faults without a description"
    page = PAGE.read_text()
    for table in (faults.format_table(), faults.format_other_table()):
        assert table in page, "print the tables with `python tests/parallel/faults.py`"
