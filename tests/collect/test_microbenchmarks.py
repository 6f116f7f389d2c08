"""Tests with tables of the OSU micro-benchmarks and of nccl-tests, and with text that must not be parsed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.collect.microbenchmarks import Microbenchmark, read

FIXTURES = Path(__file__).parent / "microbenchmarks"


def tables(name: str) -> list[Microbenchmark]:
    path = FIXTURES / name
    return read(path.read_text().splitlines(), path)


def test_a_collective_of_osu_with_other_output_between() -> None:
    (table,) = tables("osu-allreduce-cuda.txt")
    assert (table.tool, table.name, table.version, table.line) == (
        "OSU micro-benchmarks",
        "MPI-CUDA Allreduce Latency",
        "7.4",
        6,
    )
    assert table.quantities == ("seconds", "seconds_min", "seconds_max", "iterations")
    assert [(size.line, size.bytes) for size in table.sizes] == [(7, 4), (8, 1024), (10, 1 << 20)]
    last = table.sizes[-1]
    assert last.values == pytest.approx(
        {"seconds": 170.16e-6, "seconds_min": 168e-6, "seconds_max": 172.32e-6, "iterations": 100}
    )
    assert last.wrong is None


def test_two_tables_in_one_file_and_one_without_sizes() -> None:
    bandwidth, barrier = tables("osu-bw-5.6.txt")
    assert bandwidth.name == "MPI Bandwidth" and bandwidth.version == "5.6.2"
    assert [size.values for size in bandwidth.sizes] == [
        {"bytes_per_s": pytest.approx(3.67e6)},
        {"bytes_per_s": pytest.approx(12345.6e6)},
    ]
    (only,) = barrier.sizes
    assert only.bytes is None and only.values == {"seconds": pytest.approx(5.21e-6)}


def test_failed_validation_is_reported() -> None:
    (table,) = tables("osu-validation.txt")
    assert [size.wrong for size in table.sizes] == [0, 1]


def test_nccl_tests_out_of_place_and_in_place() -> None:
    (table,) = tables("nccl-all-reduce.txt")
    assert (table.tool, table.name) == ("nccl-tests", "all_reduce_perf")
    first, second = table.sizes
    assert (first.line, first.bytes, first.wrong, second.wrong) == (11, 1 << 27, 0, 2)
    # The printed bandwidth is size over time, which checks units and columns.
    for size in table.sizes:
        assert size.bytes is not None
        for place in ("", "_in_place"):
            rate = size.bytes / size.values["seconds" + place]
            assert rate == pytest.approx(size.values["algorithm_bytes_per_s" + place], rel=1e-3)


def test_old_nccl_tests_without_operator_and_unchecked() -> None:
    (table,) = tables("nccl-broadcast-old.txt")
    (size,) = table.sizes
    assert (size.bytes, size.wrong, size.values["seconds"]) == (8, None, pytest.approx(12.5e-6))
    assert table.name == ""


@given(
    name=st.sampled_from(sorted(path.name for path in FIXTURES.glob("*.txt"))),
    place=st.floats(0, 1),
    junk=st.text(max_size=40),
    cut=st.booleans(),
)
def test_a_damaged_file_gives_no_figure_that_is_not_in_its_line(name: str, place: float, junk: str, cut: bool) -> None:
    text = (FIXTURES / name).read_text()
    at = int(place * len(text))
    damaged = (text[:at] if cut else text[:at] + junk + text[at:]).split("\n")
    for table in read(damaged, Path(name)):
        for size in table.sizes:
            fields = damaged[size.line - 1].replace("<stdout>:", " ").split()  # the launcher's tag
            assert size.bytes is None or str(size.bytes) in [word.lstrip("0") or "0" for word in fields]
            printed = [float(word) for word in fields if word.replace(".", "", 1).replace("e+", "", 1).isdigit()]
            possible = [number * scale for number in printed for scale in (1, 1e-6, 1e6, 1e9, 1e-2)]
            assert all(
                any(value == pytest.approx(candidate) for candidate in possible) for value in size.values.values()
            )
