"""Commands that start as copies of a process that has imported PyTorch, which takes seconds."""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import NoReturn

# What layerdag imports from others. Of layerdag nothing: a command finds its own modules.
IMPORTED = (
    "torch._dynamo", "torch.distributed.tensor.parallel", "torch.distributed.pipelining",
    "torch.distributed.fsdp", "torch.profiler", "torch.testing._internal.distributed.fake_pg",
    "torch_geometric.data", "hydra.utils", "matplotlib.figure", "networkx", "safetensors.torch",
    "scipy.optimize", "scipy.sparse.csgraph", "scipy.spatial.distance", "scipy.stats",
    "sklearn.ensemble",
)  # fmt: skip
CALLER = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(int(server.recv(16) or b"70"))
"""


@contextlib.contextmanager
def programs(environment: Mapping[str, str]) -> Iterator[Path]:
    """Return a folder with a ``layerdag`` and a ``python`` that work until the context ends.

    Each command runs in its own process, in the folder and the environment and with the files of
    its caller.
    """
    folder = Path(tempfile.mkdtemp())  # an address has at most a hundred characters
    address = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(16)
        words = [sys.executable, __file__, str(listening.fileno())]
        server = subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.PIPE,
            pass_fds=(listening.fileno(),),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    for name in ("layerdag", "python"):
        (folder / name).write_text(CALLER.format(python=sys.executable, address=address))
        (folder / name).chmod(0o755)
    try:
        yield folder
    finally:
        server.communicate()
        shutil.rmtree(folder)


def serve(listening: socket.socket) -> None:
    """Answer every command from a process of its own until standard input is closed."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while listening in select.select((listening, sys.stdin), (), ())[0]:
        caller, _ = listening.accept()
        if not os.fork():
            listening.close()
            answer(caller)
        caller.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    os.killpg(0, signal.SIGKILL)


def answer(caller: socket.socket) -> NoReturn:
    """Run the command of the caller in another process and send its exit code."""
    _, files, _, _ = socket.recv_fds(caller, 1, 3)
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        caller.sendall(str(code if code >= 0 else 128 - code).encode())
        os._exit(0)
    with caller.makefile("rb") as said:
        words, folder, environment = json.load(said)
    caller.close()
    for at, file in enumerate(files):
        os.dup2(file, at)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    code = 0
    try:
        run(words)
    except SystemExit as done:
        code = done.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)  # to take torch apart would take 0.4 s


def run(words: list[str]) -> None:
    """Do what the program of this name does with these arguments."""
    program = Path(words[0]).name
    if program == "layerdag":
        sys.argv = words
        sys.modules["__main__"] = ModuleType("__main__")
        from layerdag.cli.main import main

        sys.exit(main())
    elif words[1] == "-c":
        sys.argv = words[1:2] + words[3:]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(words[2], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = words[1:]
        sys.path.insert(0, str(Path(words[1]).resolve().parent))
        runpy.run_path(words[1], run_name="__main__")


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, which a user does not have
    serve(socket.socket(fileno=int(sys.argv[1])))
