"""A copy of the checkout to break things in: a fault in a writer may delete what it finds."""

import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

MEMORY = 6 * 2**30
"""Bytes that a test may ask for beyond what the process holds when it starts."""


def copy_checkout(root: Path, target: Path) -> None:
    """Copy the files that git knows or would add, and the compiled kernels; deletes ``target``."""
    shutil.rmtree(target, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, check=True, capture_output=True, text=True,
    )  # fmt: skip
    kernels = (str(p.relative_to(root)) for p in root.glob("layerdag/_native*.so"))
    for name in [*filter(None, listed.stdout.split("\0")), *kernels]:
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)


def fingerprint(paths: Iterable[Path]) -> str:
    """Return a hash of files' names and contents."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(str(path).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def run_in_child(task: Callable[[], int], seconds: float, log: str = os.devnull) -> int:
    """Run ``task`` in a fork with bounded time and memory; its result becomes the exit code.

    Args:
        task: What to run; an exception counts as exit code 70.
        seconds: Processor seconds after which the child is killed; clock time is bounded by 10
            times as much.
        log: File that takes what the child prints.

    Returns:
        The exit code, or minus the number of the signal that ended the child.
    """
    child = os.fork()
    if child == 0:
        code = 70
        try:
            _confine(seconds, log)
            code = task()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _confine(seconds: float, log: str) -> None:
    """Limit this process and send what it prints to a file."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    whole = int(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 5))
    signal.alarm(10 * whole)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(printed, stream)


class Kernels:
    """The compiled kernels of a copy, object files kept so that one changed source is quick."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.sources = sorted(str(p.relative_to(tree)) for p in tree.glob("native/**/*.c"))
        self.objects = tree / "build" / "objects"
        self.objects.mkdir(parents=True, exist_ok=True)
        self.compiled = next(tree.glob("layerdag/_native*.so"))

    def build(self, changed: Iterable[str]) -> bool:
        """Compile the changed sources and link; return False where they do not compile."""
        for source in changed:
            include = sysconfig.get_paths()["include"]
            flags = ["-O1", "-std=c11", "-ffp-contract=off", "-fPIC", "-w", f"-I{include}"]
            command = ["gcc", *flags, "-c", source, "-o", self._object(source)]
            if subprocess.run(command, cwd=self.tree, capture_output=True).returncode:
                return False
        draft = self.compiled.with_suffix(".draft")
        objects = [self._object(source) for source in self.sources]
        linked = subprocess.run(
            ["gcc", "-shared", *objects, "-o", str(draft)], cwd=self.tree, capture_output=True
        )
        if linked.returncode == 0:
            draft.replace(self.compiled)
        return linked.returncode == 0

    def users(self, path: str) -> list[str]:
        """Return the sources to compile when a file changes; all that share a header's prefix."""
        if path in self.sources:
            return [path]
        prefix = Path(path).stem.split("_")[0]
        return [source for source in self.sources if Path(source).stem.startswith(prefix)]

    def _object(self, source: str) -> str:
        """Return the object file of a source."""
        return str(self.objects / source.replace("/", "-")) + ".o"
