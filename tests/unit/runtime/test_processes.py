"""Processes that are told over a connection what to do."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import answering
import pytest
from answering import cut_off, half

from layerdag.errors import LayerdagError
from layerdag.runtime.processes import Worker, in_any_order, wait_for_any

LARGE = pickle.dumps(b"-" * 4_000_000)
"""More than any pipe holds."""


def test_what_is_sent_is_answered_and_the_process_can_be_ended():
    workers = [Worker.start(half), Worker.start(half)]
    workers[1].send(2 * pickle.dumps(b"answer"))
    assert wait_for_any(workers) == workers[1:]
    assert workers[1].receive() == b"answer"
    workers[0].stop()
    assert wait_for_any(workers[:1]) == workers[:1]
    with pytest.raises(EOFError):
        workers[0].receive()


@pytest.mark.parametrize("target", [os._exit, cut_off], ids=["starting", "answering"])
def test_a_process_that_dies_is_noticed(target):
    worker = Worker.start(target)
    worker.send(LARGE)
    assert wait_for_any([worker]) == [worker]
    with pytest.raises(EOFError):
        worker.receive()


@pytest.mark.parametrize("processes", [1, 2])
def test_calls_are_made_here_or_in_other_processes(processes):
    found = list(in_any_order(divmod, [(7, 2), (9, 5)], processes))
    assert sorted(found) == [(1, 4), (3, 1)]


def test_a_pool_that_loses_a_process_says_so():
    with pytest.raises(LayerdagError, match="A process that simulates ended early"):
        list(in_any_order(os._exit, [(9,), (9,)], 2))


TELLS_WHAT_IT_IS = """\
import os, signal, sys, threading, time
from answering import has_marked_module, waiting
from layerdag.runtime.processes import Worker

if __name__ == "__main__":
    if sys.argv[1] == "beside a thread":
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    sys.modules["marked"] = sys
    print(Worker.start(has_marked_module).receive())
    print(Worker.start(waiting).process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="only Linux tells its threads")
@pytest.mark.parametrize(("beside", "copied"), [("nothing", True), ("beside a thread", False)])
def test_a_process_with_one_thread_is_copied_and_its_copies_end_with_it(beside, copied, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TELLS_WHAT_IT_IS)
    paths = os.pathsep.join([str(Path(answering.__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, script, beside], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    told, worker = done.stdout.split()
    assert told == str(copied)
    end = time.monotonic() + 20
    while _runs(worker) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _runs(worker)


def _runs(process: str) -> bool:
    """Return whether a process is there, and not one that has ended unseen."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
