"""Test of where_it_pays.py in its tiny form: compression pays on a slow network, but not on a fast one."""

import json
from collections.abc import Callable
from pathlib import Path

from printed import Printed


def test_the_slow_network_gains_more(tiny: Callable[..., Printed], tmp_path: Path) -> None:
    path = tmp_path / "cells.json"
    printed = tiny("where_it_pays.py", "--json", str(path), "--plot", str(tmp_path / "map.svg"))
    slow, fast = json.loads(path.read_text())["cells"]
    assert (slow["gbit"], fast["gbit"]) == (25, 3200) and slow["gain"] > 0.03 > fast["gain"]
    assert "gains 3 % or more in 1 of 2 cells" in "\n".join(printed.lines)
    assert "gpt2-small" in (tmp_path / "map.svg").read_text()
