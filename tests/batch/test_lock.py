"""The lock of a directory of submissions: one command at a time, and none that waits for the dead."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcbench.batch.lock import locked
from hpcbench.batch.processes import identity
from hpcbench.errors import UserError

ADD = """
import sys, time
from pathlib import Path
from hpcbench.batch.lock import locked
place = Path(sys.argv[1])
for _ in range(20):
    with locked(place):
        number = int((place / "number").read_text())
        time.sleep(0.001)
        (place / "number").write_text(str(number + 1))
"""


def test_processes_take_turns(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    adders = [subprocess.Popen([sys.executable, "-c", ADD, str(tmp_path)]) for _ in range(4)]
    assert [adder.wait() for adder in adders] == [0] * 4
    assert (tmp_path / "number").read_text() == "80"
    assert [path.name for path in tmp_path.iterdir()] == ["number"]


def test_a_dead_holder_is_passed_by(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    holder = identity(child.pid)
    (tmp_path / ".lock").write_text(json.dumps(holder))
    with (
        pytest.raises(UserError, match=rf"held by process {child.pid} on .*: wait for that command to end"),
        locked(tmp_path, patience=0.2),
    ):
        raise AssertionError("two hold it")
    child.kill()
    child.wait()
    with locked(tmp_path, patience=0.2):
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()


def test_a_holder_elsewhere_is_believed_until_it_is_silent_for_long(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.write_text(json.dumps({"pid": 1, "start": 1, "host": "login07", "boot": "x"}))
    with pytest.raises(UserError, match="process 1 on login07"), locked(tmp_path, patience=0.2):
        raise AssertionError("two hold it")
    os.utime(path, (time.time() - 700, time.time() - 700))
    with locked(tmp_path, patience=0.2) as lock:
        os.utime(path, (time.time() - 700, time.time() - 700))
        lock.still_here()
        assert time.time() - path.stat().st_mtime < 60
    assert not path.exists()


def test_it_is_given_back_when_the_work_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
