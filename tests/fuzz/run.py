"""The C sources under the address and undefined-behavior sanitizers: fuzz targets, then tests.

    python tests/fuzz/run.py --seconds 60 --out outputs/sanitize

Needs gcc (or what CC says) with its sanitizers. Each fuzz target runs for ``--seconds`` with the
driver beside this file, all at once, and leaves the input of a fault in ``--out``. Then the tests
of what calls C run with a library that was built with the sanitizers.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
NATIVE = ROOT / "native"
CC = os.environ.get("CC", "gcc")
CHECKS = ("-g", "-O1", "-std=c11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
COVERAGE = "-fsanitize-coverage=trace-pc"
TESTS = (
    "tests/unit/graph/test_attributed_graph.py",
    "tests/unit/graph/test_topology.py",
    "tests/unit/models/fast/test_samplers.py",
    "tests/unit/models/fast/test_fused_attention.py",
    "tests/unit/models/fast/test_fused_losses.py",
    "tests/unit/models/fast/test_targets.py",
    "tests/unit/models/test_fused.py",
    "tests/unit/simulator/test_analysis.py",
    "tests/unit/simulator/test_collectives.py",
    "tests/unit/simulator/test_event_loop.py",
    "tests/unit/simulator/test_golden.py",
    "tests/unit/simulator/test_program.py",
    "tests/unit/simulator/test_run.py",
    "tests/unit/traces/chakra",
    "tests/unit/traces/pytorch/test_host_dataflow.py",
    "tests/unit/traces/pytorch/test_host_trace.py",
    "tests/unit/traces/pytorch/test_importer.py",
    "tests/unit/traces/pytorch/test_operators.py",
)


@dataclass(frozen=True)
class Target:
    """A fuzz target: its file and the sources under test."""

    name: str
    sources: tuple[str, ...]


TARGETS = (
    Target("fuzz_wire", ("wire/pool.c", "wire/read.c", "wire/write.c")),
    Target("fuzz_host", ("wire/pool.c", "host/json_text.c", "host/scan.c", "host/tensors.c")),
)


def build_target(target: Target, out: Path) -> Path:
    """Compile a fuzz target; the driver alone is neither checked nor counted."""
    program, driver = out / target.name, out / f"{target.name}_driver.o"
    subprocess.run([CC, "-O2", "-std=gnu11", "-c", HERE / "driver.c", "-o", driver], check=True)
    files = [*(NATIVE / name for name in target.sources), HERE / f"{target.name}.c"]
    command = [CC, *CHECKS, COVERAGE, f"-I{NATIVE}", *files, driver, "-o", program]
    subprocess.run(command, check=True)
    return program


def build_library(out: Path) -> Path:
    """Compile the whole library with the sanitizers."""
    import sysconfig

    library = out / "_native.so"
    files = sorted(NATIVE.rglob("*.c"))
    python = f"-I{sysconfig.get_path('include')}"
    command = [CC, *CHECKS, "-ffp-contract=off", "-fPIC", "-shared", python, *files]
    subprocess.run([*command, "-lm", "-o", library], check=True)
    return library


def seeds(folder: Path) -> dict[str, list[Path]]:
    """Write small traces that the mutation starts from, by target."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]
    import host_json
    from trace_examples import pair_workload, rich_trace

    from layerdag.traces.chakra.files import encode_trace

    traces = [rich_trace(), *pair_workload().traces]
    nodes_only = [_without_first(encode_trace(trace)) for trace in traces]
    wire = [_write(folder / f"{i}.et", content) for i, content in enumerate(nodes_only)]
    nodes = [
        host_json.node(3, "aten::mm", host_json.MM, (host_json.tensor(1),) * 2),
        host_json.node(4, "aten::relu_", host_json.RELU_, (host_json.listed(host_json.tensor(2)),)),
        host_json.node(5, "aten::add", inputs=(host_json.plain(3), host_json.plain("a\\u00e9\n"))),
    ]
    text = json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes}).encode()
    flat = json.dumps(nodes).encode()
    host = [
        _write(folder / f"{name}.host", head + body)
        for name, head, body in (("nested", b"\x40", text), ("flat", b"\x41", flat))
    ]
    return {"fuzz_wire": wire, "fuzz_host": host}


def _without_first(messages: bytes) -> bytes:
    """Return what follows the first message, the trace's metadata, as the scanner is called."""
    size, used = 0, 0
    while True:
        byte = messages[used]
        size |= (byte & 0x7F) << (7 * used)
        used += 1
        if byte < 0x80:
            return messages[used + size :]


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def fuzz(programs: Sequence[Path], out: Path, seconds: int) -> bool:
    """Run every target at once; return whether all ended without a fault."""
    inputs, seed = seeds(out), int(time.time())
    print(f"fuzzing for {seconds} s with seed {seed}", flush=True)
    runs = []
    for program in programs:
        words = [program, str(seconds), str(seed), out / f"{program.name}.crash"]
        runs.append(subprocess.Popen([*words, *inputs[program.name]]))
    codes = [run.wait() for run in runs]
    return not any(codes)


def test(library: Path) -> bool:
    """Run the tests of what calls C with the checked library; return whether they passed."""
    runtime = [
        subprocess.run(
            [CC, f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")  # the second, for torch throws exceptions
    ]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(runtime),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",  # Python leaks by design
        "PYTHONPATH": str(HERE),
        "CHECKED_LIBRARY": str(library),
    }
    # Shapes are checked by `make test`; here they would take most of the time.
    pytest = ("pytest", "-q", "-n", "2", "-p", "checked_library", "--jaxtyping-packages=")
    command = [sys.executable, "-m", *pytest, *TESTS]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0


def main() -> int:
    """Run all and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="of each fuzz target")
    parser.add_argument("--out", type=Path, default=Path("outputs/sanitize"))
    options = parser.parse_args()
    if shutil.which(CC) is None:
        print(f"{CC} is not there; set CC to a gcc with its sanitizers", file=sys.stderr)
        return 2
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as pool:
        library = pool.submit(build_library, out)
        programs = list(pool.map(build_target, TARGETS, repeat(out)))
        fuzzed = fuzz(programs, out, options.seconds)
        tested = test(library.result())
    return 0 if fuzzed and tested else 1


if __name__ == "__main__":
    sys.exit(main())
