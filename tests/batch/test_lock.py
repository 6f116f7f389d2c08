"""Tests of the lock of a submission directory: one command at a time, and no waiting for a dead lock holder."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from batch_fakes import wait_for

from hpcbench.batch.schedulers.processes import identity
from hpcbench.batch.tracking.lock import locked
from hpcbench.errors import UserError

ADD = """
import sys, time
from pathlib import Path
from hpcbench.batch.tracking.lock import locked
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


def test_the_lock_of_a_dead_holder_is_taken(tmp_path: Path) -> None:
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


def test_a_holder_on_another_host_keeps_the_lock_until_it_is_silent_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".lock"
    path.write_text(json.dumps({"pid": 1, "start": 1, "host": "login07", "boot": "x"}))
    with pytest.raises(UserError, match="process 1 on login07"), locked(tmp_path, patience=0.2):
        raise AssertionError("two hold it")
    os.utime(path, (time.time() - 700, time.time() - 700))
    monkeypatch.setattr("hpcbench.batch.tracking.lock._BEAT", 0.05)
    with locked(tmp_path, patience=0.2):
        os.utime(path, (time.time() - 700, time.time() - 700))
        wait_for(lambda: time.time() - path.stat().st_mtime < 60)
    assert list(tmp_path.iterdir()) == []


def test_the_lock_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_one_of_many_processes_takes_the_lock_of_a_dead_holder(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    holder = json.dumps({**(identity(gone.pid) or {}), "token": "gone"})
    gone.kill()
    gone.wait()
    inside, most, lock = [], [], threading.Lock()

    def hold(place: Path, turn: threading.Barrier) -> None:
        turn.wait()
        with locked(place):
            with lock:
                inside.append(1)
                most.append(len(inside))
            time.sleep(0.002)
            with lock:
                inside.pop()

    for number in range(6):
        place = tmp_path / str(number)
        place.mkdir()
        (place / ".lock").write_text(holder)
        (place / ".lock.over").write_text(holder)  # so has a process that was about to remove it
        turn = threading.Barrier(6)
        threads = [threading.Thread(target=hold, args=(place, turn)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(place.iterdir()) == []
    assert most == [1] * 36


def test_a_holder_that_lost_its_lock_does_not_remove_the_next_one(tmp_path: Path) -> None:
    with locked(tmp_path):
        (tmp_path / ".lock").write_text(json.dumps({"pid": 1, "host": "login07", "token": "next"}))
    assert json.loads((tmp_path / ".lock").read_text())["token"] == "next"


@pytest.mark.parametrize("content", ["", "[1]", "{}", '{"pid": "x"}', '{"token": 7}'])
def test_an_unreadable_lock_is_named_with_the_remedy(tmp_path: Path, content: str) -> None:
    (tmp_path / ".lock").write_text(content)
    with pytest.raises(UserError, match=r"\.lock: is held by .*remove the file"), locked(tmp_path, patience=0.1):
        raise AssertionError("two hold it")
