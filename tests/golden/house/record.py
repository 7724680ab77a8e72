"""Record what layerdag computes, as hashes, and tell what has changed since.

python tests/golden/house/record.py                  tell which entries differ; exit code 1 if any
python tests/golden/house/record.py --only convert/  the same of jobs whose name begins so
python tests/golden/house/record.py --write          write record.json anew

The record holds across a restructuring of the package: it uses the command line, its Hydra words,
the names of ``import layerdag as ld``, and nothing further inside. A job runs its commands one
after the other in a temporary folder, where ``data`` is the data folder of the repository.
Recorded are exit codes, standard outputs, and all files that lie in ``out`` afterwards, those of
all ranks of a workload as one. An entry is called ``job:part``, such as
``convert/data/examples/pp_gpt/graphml:graph.graphml``; one of the parts is ``stdout``.

An entry is the SHA-256 of the bytes or, of JSON and JSON Lines, of their canonical form without
the keys in ``DROPPED``: wall-clock times, versions, host names. Of weights there is a second entry,
``FILE#tensors``, that does not change when parameters are renamed. The figures are those of one
machine and one installation: kernels of torch differ in the last bit elsewhere, and so do help
texts of other versions of Python. Write and compare the record on one machine.

Left out, because they depend on the clock or hold dates: ``collect``, ``demo``, ``release``,
pictures (PNG, SVG, PDF) and the state of the trainer (``.pt``).
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
RECORD = Path(__file__).with_name("record.json")
PROCESSES = 2
TIMEOUT_S = 280

# Keys of JSON objects that are no results: times of the run, versions, names of machines, and
# hashes of the checkpoints' files, which are written anew without a change of any number.
DROPPED = {
    "checkpoint_sha256", "elapsed", "graphs_per_s", "host", "hostname", "layerdag_version",
    "python_version", "samples/graphs_per_s", "seconds", "started", "torch_version",
    "train/graphs_per_second", "wall_s",
}  # fmt: skip
NOT_RECORDED = {".pt", ".png", ".svg", ".pdf", ".lock"}
ENVIRONMENT = {
    "COLUMNS": "100", "CUDA_VISIBLE_DEVICES": "", "LANG": "C.UTF-8", "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT), "TZ": "UTC",
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """Commands that run in one folder, in which ``files`` (text by name) lie already."""

    name: str
    commands: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)


EXAMPLES = ("ddp_mlp", "ep_moe", "pp_gpt")
# Compiled programs become traces alone, by the rates of a device.
PROGRAMS = ("programs/loop.hlo", "programs/mlp.mlir")
OF_PROGRAMS = ("et", "json", "feeder-json", "param")
# Formats of "convert", and the file or prefix that each writes.
FORMATS = {
    "et": "job", "json": "job.json", "feeder-json": "job", "param": "job",
    "graphml": "graph.graphml", "wfformat": "graph.json", "dot": "graph.dot",
}  # fmt: skip
VIEWS = {"a.html": "--rank 0", "a.graphml": "", "a.dot": "", "a.json": "", "b.json": "--to chrome"}
SAMPLES = ("et", "graphml", "json", "tar", "parquet")
TRAINING = """data=corpus data.families=[mlp] training.max_steps=20 training.log_every=1
training.batch_nodes=200 seed=3 threads=1 device=cpu logger.sample_graphs=0 out=out"""
TRAINED = {"fast": "model.width=32", "reference": ""}
# Verbs that write workloads; "job" is one that is written before.
WRITERS = """\
workload gpt2 --data 2
workload gpt2 --context 4 --sequence 4096
workload gpt2-xl --data 4 --zero 1 --precision fp32
workload gpt3-6.7b --pipeline 4 --micro-batches 4 --schedule gpipe
workload gpt3-13b --tensor 4 --attention unfused --recompute selective
workload gpt3-175b --tensor 8 --pipeline 4 --micro-batches 4 --sequence-parallel
workload transformer-1t --tensor 8 --pipeline 2 --recompute full
workload llama2-7b --data 8 --zero 3
workload llama2-13b --data 4 --zero 2 --precision bf16-fp32-gradients
workload llama2-70b --tensor 2 --pipeline 4 --micro-batches 8 --schedule zb-h1
workload llama3-8b --pipeline 4 --virtual-stages 2 --micro-batches 4 --schedule interleaved
workload llama3-70b --phase decode --tensor 8 --sequence 4096 --batch 32
workload llama3-70b --phase disaggregated --prefill-tensor 4 --decode-tensor 2 --batch 8 --tokens 4
workload llama3.2-1b --phase prefill --tensor 2 --batch 4
workload mistral-7b --phase inference --tensor 2
workload mixtral-8x7b --expert 4 --data 4 --tensor 2
workload qwen2.5-7b --data 2 --tensor 2 --causal half
workload qwen3-30b-a3b --expert 8 --data 8
workload deepseek-v2-lite --expert 2 --data 2 --pipeline 2 --micro-batches 2
workload vit-h14 --data 8 --batch 64
workload dit-b-2 --data 2 --batch 8
workload dlrm-v2 --data 8
workload stage --model_type gpt --num_stacks 2 --dp 2 --tp 2 --pp 2 --micro_batch 4 --batch 8
workload stage --model_type llama --mixed_precision true --num_stacks 2 --tp 2 --sp 2 --dmodel 512
workload stage --model_type moe --ep 4 --num_stacks 1 --dmodel 512 --head 8 --seq 256
workload stage --model_type dense --num_stacks 3 --dp 4 --weight_sharded true --tpsp false
capture gpt2 --layers 2 --data 2 --sequence 128
capture gpt2 --layers 2 --phase inference --sequence 128
capture llama3.2-1b --layers 2 --fsdp 2 --sequence 128
capture llama3.2-1b --layers 2 --tensor 2 --sequence 128
scale data/examples/ddp_mlp --ranks 64
scale job --ranks 16
scale job --data 4 --layers 48
"""
STUDY = """\
model: [gpt2, llama3.2-1b]
step: {batch: 16, sequence: 1024}
plans: {tensor: [1, 2, 4], pipeline: [1, 2], zero: [0, 3], micro_batches: [1, 2]}
clusters:
  node: {device: h100, memory_gib: 80, cost_per_hour: 2.5,
         network: [{topology: Switch, ranks: 4, gb_per_s: 450}]}
  cloud: {device: a100-40, efficiency: 0.5, memory_gib: 24,
          network: [{topology: Ring, ranks: 2, gb_per_s: 100, latency_ns: 500},
                    {topology: Switch, ranks: 2, gb_per_s: 12, latency_ns: 2000}]}
"""
CODE = {
    "read": """
for name in ("ddp_mlp", "ep_moe", "pp_gpt"):
    workload = ld.read(f"data/examples/{name}")
    ld.write_workload(workload, f"out/{name}")
    print(name, workload.num_ranks, len(ld.validate(workload)))
    print(ld.simulate(workload, ld.Cluster.preset("small"), compute="h100").makespan_ns)
    print(ld.diff(workload, ld.read("data/examples/ddp_mlp")).equal)
""",
    "compare": """
data = ld.load_corpus(max_nodes=1200, further="further")
model = ld.load_checkpoint(ROOT / "layerdag/pretrained/corpus")
paths = [f"out/{i}.json" for i in range(6)]
for path, sample in zip(paths, ld.sample(model, num=6, seed=9, max_nodes=100, best_of=1)):
    ld.write(sample, path)
print(json.dumps(ld.compare(data, paths, replicates=20).to_dict()))
""",
    "workload": """
workload = ld.workload("gpt2", data=2, tensor=2)
ld.write_workload(workload, "out/job")
ld.write_workload(ld.scale("data/examples/ddp_mlp", ranks=8).workload, "out/scaled")
""",
}
THREE_SETS = """
for i, graph in enumerate(ld.sample(num=36, seed=1, max_nodes=60, best_of=1)):
    Path("abc"[i % 3]).mkdir(exist_ok=True)
    ld.write(graph, f"{'abc'[i % 3]}/{i}.json")
"""
HEAD = f"import json\nfrom pathlib import Path\nimport layerdag as ld\nROOT = Path({str(ROOT)!r})\n"
VERBS = """collect, convert, info, diff, view, validate, workload, workload stage, workload corpus,
capture, scale, explore, simulate, calibrate, sweep, rankings, pack, train, sample,
surrogate, surrogate fit, surrogate
tune, surrogate predict, surrogate eval, surrogate tstr, audit, release, runs, demo"""


def main() -> int:
    """Compare or write the record."""
    parser = argparse.ArgumentParser(description="Record results as hashes, or compare them.")
    parser.add_argument("--write", action="store_true", help="write record.json anew")
    parser.add_argument("--only", default="", metavar="PREFIX", help="jobs that begin so")
    options = parser.parse_args()
    chosen = [job for job in jobs() if job.name.startswith(options.only)]
    before = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    others = {key: value for key, value in before.items() if not key.startswith(options.only)}
    start = time.monotonic()
    with ThreadPoolExecutor(PROCESSES) as pool:
        now = {key: value for found in pool.map(run, chosen) for key, value in found.items()}
    tell(f"{len(chosen)} jobs, {len(now)} entries, {time.monotonic() - start:.0f} s")
    if options.write:
        RECORD.write_text(json.dumps(others | now, indent=1, sort_keys=True) + "\n")
        return 0
    now |= others
    differ = [key for key in sorted(before | now) if before.get(key) != now.get(key)]
    for key in differ:
        kind = "new" if key not in before else "missing" if key not in now else "changed"
        tell(f"{kind} {key}")
    return 1 if differ else 0


def jobs() -> Iterator[Job]:
    """Yield all jobs, long ones first."""
    for name, code in CODE.items():
        yield Job(f"api/{name}", ("python code.py",), {"code.py": HEAD + code})
    for model, more in TRAINED.items():
        yield Job(f"train/{model}", (f"layerdag train model={model} {TRAINING} {more}",))
    for checkpoint, kind in product(("corpus", "llm"), SAMPLES):
        folder = shlex.quote(str(ROOT / "layerdag/pretrained" / checkpoint))
        words = f"checkpoint={folder} format={kind} num=8 seed=0 max_nodes=200 device=cpu"
        words += " processes=1 threads=1 out=out" + ("" if kind == "et" else " best_of=1")
        words += " part_size=4" if kind in {"tar", "parquet"} else ""
        yield Job(f"sample/{checkpoint}/{kind}", (f"layerdag sample {words}",))
    for family in ("additive", "boosting"):
        fit = f"layerdag surrogate fit data --family {family} --exclude duration --out model --json"
        paths = " ".join(f"data/examples/{name}" for name in EXAMPLES)
        predict = f"layerdag surrogate predict model {paths} --json"
        yield Job(f"surrogate/{family}", (fit, predict))
    yield Job("workload/corpus", ("layerdag workload corpus --num 12 --seed 7 --out out/corpus",))
    audit = "layerdag audit --train a --holdout b --synthetic c --no-cache --json"
    yield Job("audit", ("python code.py", audit), {"code.py": HEAD + THREE_SETS})
    pack = "layerdag pack a --held-out 0.3 --out out/packed"
    yield Job("pack", ("python code.py", pack), {"code.py": HEAD + THREE_SETS})
    explore = "layerdag explore study.yaml --processes 1 --out out/study.html --json"
    yield Job("explore", (explore,), {"study.yaml": STUDY})
    words = "data --families mlp --ranks 1,2 --cores 2 --out out/machine.json"
    yield Job("calibrate", (f"layerdag calibrate {words}",))
    yield Job("workload/list", ("layerdag workload --list",))
    job = "layerdag workload llama3-8b --data 2 --tensor 2 --out job"
    for words in WRITERS.splitlines():
        before = (job,) if " job " in words else ()
        command = f"layerdag {words} --out out/job --json"
        yield Job(words.replace(" ", "/", 1), (*before, command))
    yield from _traces()
    yield from _simulations()
    for verb in ("", *VERBS.replace("\n", " ").split(", ")):
        yield Job(f"help/{verb or 'layerdag'}", (f"layerdag {verb} --help",))


def _traces() -> Iterator[Job]:
    for name in (*EXAMPLES, *PROGRAMS):
        path, device = f"data/examples/{name}", "--compute a100-80" if name in PROGRAMS else ""
        yield Job(f"info/{path}", (f"layerdag info {path} {device} --json",))
        for kind in OF_PROGRAMS if device else FORMATS:
            words = f"{path} {device} --to {kind} --out out/{FORMATS[kind]}"
            yield Job(f"convert/{path}/{kind}", (f"layerdag convert {words}",))
        scrub = f"layerdag convert {path} {device} --scrub --out out/job"
        yield Job(f"convert/{path}/scrub", (scrub,))
    for name in EXAMPLES:
        path = f"data/examples/{name}"
        yield Job(f"validate/{path}", (f"layerdag validate {path} --json",))
        for other in EXAMPLES[: EXAMPLES.index(name) + 1]:
            words = f"data/examples/{other} {path} --simulate small --json"
            yield Job(f"diff/{other}/{name}", (f"layerdag diff {words}",))
    for out, words in VIEWS.items():
        yield Job(f"view/{out}", (f"layerdag view data/examples/pp_gpt {words} --out out/{out}",))
    yield Job("validate/rules", ("layerdag validate --rules",))


def _simulations() -> Iterator[Job]:
    outputs = "--json --nodes out/nodes.csv --report --what-if"
    for name, rule, compute in product(EXAMPLES, ("unaware", "aware"), ("measured", "h100")):
        words = f"data/examples/{name} --preset small --congestion {rule} --compute {compute}"
        yield Job(f"simulate/{name}/{rule}/{compute}", (f"layerdag simulate {words} {outputs}",))
    for path in sorted((ROOT / "tests/golden/simulator").glob("case-*.json"))[::3]:
        case = json.loads(path.read_text())
        files = {f"{key}.json": json.dumps(case[key]) for key in ("system", "network", "memory")}
        files["job.json"] = json.dumps(_as_trace(case))
        words = " ".join(f"--{key} {key}.json" for key in ("system", "network", "memory"))
        words += " --reference-semantics"
        words += f" {shlex.join(case['flags'])} --json --nodes out/nodes.csv"
        commands = ("layerdag convert job.json --out job", f"layerdag simulate job {words}")
        yield Job(f"simulate/{path.stem}", commands, files)


def _as_trace(case: dict[str, Any]) -> dict[str, Any]:
    """Return a golden case of the simulator as layerdag's lossless JSON of a workload."""
    wires = {bool: "bool_val", int: "int64_val", str: "string_val", list: "bool_list"}
    fields = {"id", "type", "deps", "duration_micros"}
    traces = [
        {"version": "1.0.0", "metadata": [], "nodes": [
            {"id": node["id"], "name": f"n{node['id']}", "type": node["type"], "start_us": 0,
             "duration_us": node.get("duration_micros", 0), "data_deps": node["deps"],
             "ctrl_deps": [], "attributes": [
                {"name": name, "type": wires[type(value)], "value": value}
                for name, value in node.items() if name not in fields]}
            for node in nodes]} for nodes in case["ranks"]
    ]  # fmt: skip
    ranks = list(range(len(traces)))
    return {"format": "layerdag-trace", "ranks": ranks, "groups": case["groups"], "traces": traces}


def run(job: Job) -> dict[str, str]:
    """Return the entries of a job."""
    with tempfile.TemporaryDirectory(prefix="layerdag-record-") as name:
        folder = Path(name)
        (folder / "data").symlink_to(ROOT / "data")
        (folder / "out").mkdir()
        for file, text in job.files.items():
            (folder / file).write_text(text)
        parts: dict[str, list[str]] = {"stdout": []}
        for command in job.commands:
            program, *words = shlex.split(command)
            start = ["-m", "layerdag"] if program == "layerdag" else []
            done = subprocess.run(
                [sys.executable, *start, *words], cwd=folder, env=os.environ | ENVIRONMENT,
                capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
            if done.returncode > 1 or "Error:" in done.stderr or "error:" in done.stderr:
                tell(f"{job.name}: exit code {done.returncode}: {done.stderr[-500:]}")
            output = digest(canonical(done.stdout.encode(), ".json"))
            parts["stdout"].append(f"exit code {done.returncode}: {output}")
        for file in sorted(path for path in (folder / "out").rglob("*") if path.is_file()):
            if file.suffix in NOT_RECORDED:
                continue
            relative, content = file.relative_to(folder / "out").as_posix(), file.read_bytes()
            part = re.sub(r"\.\d+(?=\.(et|json)$)|(?<=/rank)-\d+(?=\.json$)", "", relative)
            hashed = digest(canonical(content, file.suffix))
            parts.setdefault(part, []).append(f"{relative} {hashed}")
            if file.suffix == ".safetensors":
                parts[f"{part}#tensors"] = tensors(content)
    return {f"{job.name}:{part}": digest("\n".join(of).encode()) for part, of in parts.items()}


def canonical(content: bytes, suffix: str) -> bytes:
    """Return JSON and JSON Lines in one form, without dropped keys; anything else as it is."""
    if suffix == ".jsonl":
        return b"\n".join(canonical(line, ".json") for line in content.splitlines())
    with suppress(ValueError):
        if suffix == ".json":
            return json.dumps(_without(json.loads(content)), sort_keys=True).encode()
    return content


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(item) for key, item in value.items() if key not in DROPPED}
    return [_without(item) for item in value] if isinstance(value, list) else value


def tensors(content: bytes) -> list[str]:
    """Return type, shape and hash of each tensor of a safetensors file, sorted, without names."""
    size = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:size])
    header.pop("__metadata__", None)
    return sorted(
        f"{entry['dtype']} {entry['shape']} "
        + digest(content[size + entry["data_offsets"][0] : size + entry["data_offsets"][1]])
        for entry in header.values()
    )


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
