"""Programs of the shipped checkpoint, as a user samples them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import layerdag as ld
from layerdag.cli.main import main
from layerdag.dag.dag import graph_hash
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.encoding import coded
from layerdag.errors import DataError, UsageError
from layerdag.graph.formats.program_json import encode_program_json
from layerdag.kinds.program import PROGRAM
from layerdag.programs.forward_program import Program
from layerdag.programs.targets import Targets
from layerdag.sampling import generation
from layerdag.sampling.generated import GeneratedProgram
from layerdag.sampling.sample_files import SampleFiles
from layerdag.traces.chakra.workload import read_workload
from layerdag.traces.trace import NodeType
from layerdag.training.checkpoint import pretrained_checkpoint
from layerdag.validation.whole_program import check_program


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("programs") / "samples"
    asked = ["--family", "gpt", "--depth", "4", "--sizes.B0", "24", "--processes", "1"]
    assert main(["sample", "--num", "2", "--format", "program", "--out", str(out), *asked]) == 0
    return out


def programs(folder: Path) -> list[Program]:
    return [Program.load(path) for path in sorted(folder.glob("*.program.json"))]


def test_samples_are_programs_of_the_depth_and_size_asked_for(samples):
    found = programs(samples)
    assert [len(program.units) for program in found] == [4] * 2
    assert [program.sizes["B0"] for program in found] == [24] * 2
    assert all(program.operator_counts()["aten.linear.default"] > 2 for program in found)
    asked = json.loads((samples / "manifest.json").read_text())["samples"]
    assert {entry["conditions"]["family"] for entry in asked} == {"gpt"}


def test_samples_train_for_real_and_as_steps_of_many_ranks(samples):
    for program in programs(samples):
        assert not program.check()
        module = program.module()
        loss = module(*module.example_inputs())
        loss.backward()
        assert torch.isfinite(loss)
        assert all(parameter.grad is not None for parameter in module.parameters())
        workload = program.step(data=512).workload()
        assert workload.num_ranks == 512
        assert not check_program(workload)


def test_validate_runs_samples_in_files_and_in_parts(samples, tmp_path, capsys):
    parts = str(tmp_path / "parts")
    words = ["--num", "1", "--family", "mlp", "--format", "tar", "--members", "program"]
    assert main(["sample", *words, "--out", parts]) == 0
    assert main(["validate", str(samples), parts]) == 0
    assert "3 workloads and graphs checked: no finding" in capsys.readouterr().out


def test_a_seed_gives_one_program_whatever_is_drawn_beside_it():
    """Among twelve, some are drawn again, and some have particles that do not run."""
    beside = ld.sample("programs", 12, seed=1000)
    alone = [ld.sample("programs", 1, seed=1000 + at)[0] for at in (1, 7)]
    assert [(a.program.nodes, a.program.sizes) for a in alone] == [
        (beside[at].program.nodes, beside[at].program.sizes) for at in (1, 7)
    ]


def test_no_sample_repeats_a_program_whose_hash_the_checkpoint_keeps(monkeypatch):
    few = {"num": 1, "seed": 72, "conditions": {"family": "gnn"}}
    schema = ld.load_checkpoint(pretrained_checkpoint("programs")).schema

    dags = [sample.dag for sample in ld.sample("programs", **few)]
    assert schema.structures.isdisjoint(schema.structure_hashes(dags))
    monkeypatch.setattr(generation, "MAX_COPY_RETRIES", 0)
    (sample,) = ld.sample("programs", **few, best_of=1)
    with pytest.raises(DataError, match="every program drawn repeats one of the data"):
        _ = sample.program


def test_samples_are_a_data_set_of_programs(samples):
    data = ld.load_dataset(samples)
    assert data.schema.kind == PROGRAM


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"sizes": {"w0": 8}}, "samples none"), ({"sizes": {"q": 8}}, "entries of a table of sizes")],
)
def test_sizes_of_other_checkpoints_are_refused(options, reason):
    with pytest.raises(UsageError, match=reason):
        ld.sample("pretrained", 1, **options)


def test_a_row_of_a_table_gives_the_program_back(tmp_path):
    asked = ["sample", "--num", "2", "--seed", "4"]
    assert main([*asked, "--format", "parquet", "--out", str(tmp_path / "table")]) == 0
    assert main([*asked, "--format", "program", "--out", str(tmp_path / "files")]) == 0
    rows = [encode_program_json(row.graph) for row in ld.iter_samples(tmp_path / "table")]
    files = [encode_program_json(file.graph) for file in ld.iter_samples(tmp_path / "files")]
    assert rows == files


def test_by_default_each_sample_is_the_step_of_its_program_with_times_under_a_drawn_plan(tmp_path):
    asked = ["sample", "--num", "3", "--family", "mlp"]
    assert main([*asked, "--out", str(tmp_path / "jobs")]) == 0
    entries = json.loads((tmp_path / "jobs" / "manifest.json").read_text())["samples"]
    for entry in entries:
        prefix = tmp_path / "jobs" / entry["name"] / entry["name"]
        job = read_workload(prefix)
        assert job.num_ranks == entry["ranks"]
        assert not check_program(job)
        program = Program.load(prefix.with_name(f"{entry['name']}.program.json"))
        again = program.step(**entry["plan"]).workload()
        assert [t.names() for t in again.traces] == [t.names() for t in job.traces]
        assert entry["conditions"]["label"] == ld.simulate(job, "small").makespan_s
        assert all((t.integers("duration_ns")[0] > 0)[t.type_N == NodeType.COMP].all()
                   for t in job.traces)  # fmt: skip
    assert max(entry["ranks"] for entry in entries) > 1
    # The same command with another number finds its samples and replaces them.
    asked[2] = "1"
    assert main([*asked, "--out", str(tmp_path / "jobs"), "--overwrite"]) == 0


@pytest.mark.slow  # starts processes that import torch: 20 s
@pytest.mark.usefixtures("ready_processes")
def test_processes_that_draw_make_the_files_too_and_all_are_the_same(tmp_path, monkeypatch):
    asked = ["--num", "2", "--family", "mlp", "--seed", "5", "+batch_size=1"]
    assert main(["sample", *asked, "--processes", "1", "--out", str(tmp_path / "one")]) == 0
    made = []
    made_files = GeneratedProgram.made_files

    def watched(sample: GeneratedProgram, *rest: Any) -> SampleFiles:
        made.append(sample.files is not None)
        return made_files(sample, *rest)

    monkeypatch.setattr(GeneratedProgram, "made_files", watched)
    assert main(["sample", *asked, "--processes", "2", "--out", str(tmp_path / "two")]) == 0
    assert made == [True] * 2
    one, two = (
        {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}
        for folder in (tmp_path / "one", tmp_path / "two")
    )
    assert one == two


def test_steps_of_samples_are_compared_with_jobs_and_their_programs_with_programs(tmp_path):
    samples = ld.sample(num=2, conditions={"family": "mlp"})
    ld.write_samples(samples, tmp_path / "samples")
    jobs, own = [sample.job_graph for sample in samples], [sample.graph for sample in samples]
    stored = list(ld.iter_samples(tmp_path / "samples"))
    for real, sides in ((jobs, (samples, stored)), (own, (samples, stored))):
        kind = "trace" if real is jobs else "program"
        data = GraphDataset.build("real", kind, {"train": real})
        wanted = [graph_hash(dag) for dag in coded(real, data.schema).usable]
        for side in sides:
            assert [graph_hash(dag) for dag in coded(side, data.schema).usable] == wanted


def test_times_of_a_device_are_those_that_simulate_gives(tmp_path):
    asked = ["sample", "--num", "1", "--seed", "7", "--compute", "h100"]
    assert main([*asked, "--out", str(tmp_path / "jobs")]) == 0
    (entry,) = json.loads((tmp_path / "jobs" / "manifest.json").read_text())["samples"]
    program = Program.load(tmp_path / "jobs" / entry["name"] / f"{entry['name']}.program.json")
    step = program.step(**entry["plan"]).workload()
    assert entry["conditions"]["label"] == ld.simulate(step, "small", compute="h100").makespan_s


def test_a_sample_without_what_was_asked_for_is_refused_and_no_other_program_takes_its_place():
    targets = Targets(step_time=0.01, plan={"tensor": 7})
    sample = ld.sample("programs", 1, conditions={"family": "mlp"}, targets=targets, redraws=0)[0]
    with pytest.raises(DataError, match=r"no program with what was asked for.*The last one: "):
        _ = sample.program
