"""Tests of the plot style: contrast, colors for color-blind readers, and markers and hatches in grayscale print."""

import itertools
import math

import pytest

from hpcbench.plot_style import COLOURS, DASHES, HATCHES, INK, MARKS, SETTINGS, SMALL
from hpcbench.report.plots.step import LOOKS, PARTS

PAPER, NIGHT = "#ffffff", "#121212"
# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
VISION = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}
Triple = tuple[float, ...]


def linear(colour: str) -> Triple:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)


def times(matrix: tuple[Triple, ...], vector: Triple) -> Triple:
    return tuple(min(1.0, max(0.0, sum(a * b for a, b in zip(row, vector, strict=True)))) for row in matrix)


def contrast(color: str, other: str) -> float:
    """Return the contrast according to WCAG 2."""
    light = [
        sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(x), strict=True)) + 0.05 for x in (color, other)
    ]
    return max(light) / min(light)


def lab(rgb: Triple) -> Triple:
    """Convert to CIE L*a*b* under D65."""
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(a * b for a, b in zip(row, rgb, strict=True)) for row in rows]
    f = [
        (v / n) ** (1 / 3) if v / n > 0.008856 else 7.787 * v / n + 4 / 29
        for v, n in zip(xyz, (0.9505, 1, 1.089), strict=True)
    ]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def test_the_oracles_agree_with_known_values() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert lab(linear("#ff0000")) == pytest.approx((53.24, 80.09, 67.20), abs=0.15)


def test_text_can_be_read_on_paper() -> None:
    assert contrast(INK, PAPER) >= 4.5
    assert {SETTINGS[key] for key in SETTINGS if key.endswith("color")} == {INK}


@pytest.mark.parametrize("ground", [PAPER, NIGHT])
@pytest.mark.parametrize("colour", COLOURS[:3])
def test_colours_of_lines_and_marks_stand_out_from_both_grounds(colour: str, ground: str) -> None:
    # WCAG 2.1 requires this for graphics. The brighter colors fill areas with an ink outline, or come late in a series.
    assert contrast(colour, ground) >= 3


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("colours", [COLOURS, tuple(look[0] for look in LOOKS), (INK, *COLOURS[:2])])
def test_colours_stay_apart_for_every_eye(vision: str, colours: tuple[str, ...]) -> None:
    seen = [lab(times(VISION[vision], linear(colour))) for colour in colours]
    # A difference of 2.3 is barely visible. From about 10, adjacent areas are easily distinguished.
    assert min(math.dist(a, b) for a, b in itertools.combinations(seen, 2)) >= 10


def test_grey_print_tells_by_marks_dashes_and_hatches() -> None:
    for looks in (MARKS, DASHES, HATCHES):
        assert len(set(looks)) == len(looks)
    assert len(MARKS) == len(COLOURS), "a colour never stands alone"
    assert len({hatch for _, hatch in LOOKS}) == len(PARTS)


def test_the_smallest_type_is_large_enough_in_a_column() -> None:
    sizes = [value for key, value in SETTINGS.items() if key.endswith("size") and key.split(".")[0] not in ("lines",)]
    assert SMALL >= 6.5 and min(size for size in sizes if size > 4) >= SMALL
