"""``layerdag validate`` of samples in parts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from broken_jobs import BEYOND_FIXING, BROKEN
from changed_steps import on_all_ranks, rows_of, with_number
from sample_parts import written as written_sample_parts
from small_programs import language
from small_workloads import collective, compute, job
from tiny_checkpoints import chain_checkpoint, job_checkpoint

import layerdag as ld
from layerdag.api.checking import check_part, parts_at
from layerdag.cli.main import main
from layerdag.errors import DataError
from layerdag.kinds.job import JOB
from layerdag.sampling.folder import write_samples
from layerdag.traces.chakra.files import encode_trace
from layerdag.traces.chakra.workload import encode_groups, read_workload, write_workload
from layerdag.traces.trace import Workload
from layerdag.validation.whole_program import WHOLE_PROGRAM_RULES


@pytest.fixture
def sound(tmp_path) -> Path:
    write_workload(job((compute(1), collective(2, 1)), (collective(2),)), tmp_path / "a" / "run")
    return tmp_path / "a" / "run"


@pytest.fixture
def broken(tmp_path) -> Path:
    write_workload(job((collective(1),), (compute(1),)), tmp_path / "b" / "run")
    return tmp_path / "b" / "run"


def test_a_sound_workload_passes(sound, capsys):
    assert main(["validate", str(sound)]) == 0
    assert capsys.readouterr().out == "1 workload or graph checked: no finding\n"


def test_findings_name_file_node_rule_and_remedy(broken, capsys):
    assert main(["validate", str(broken)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("error: [collectives-agree]")
    assert "run.0.et (rank 0): node 1" in first
    assert "Let all members call it in the same order" in first
    assert last == "1 workload or graph checked: 1 error, 0 warnings"


def test_a_folder_of_workloads_is_walked_and_json_says_the_same(sound, broken, capsys):
    assert main(["validate", str(sound.parents[1]), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["checked"] == [str(sound), str(broken)]
    assert told["valid"] is False
    assert [f["rule"] for f in told["findings"]] == ["collectives-agree"]


def test_what_cannot_be_read_is_a_finding(tmp_path, capsys):
    (tmp_path / "cut.0.et").write_bytes(b"\x05abc")
    assert main(["validate", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("error: [readable]")
    assert "Traceback" not in out


def test_warnings_fail_only_when_asked(tmp_path):
    costless = replace(compute(1), attributes=())
    write_workload(job((costless,)), tmp_path / "run")
    assert main(["validate", str(tmp_path / "run")]) == 0
    assert main(["validate", str(tmp_path / "run"), "--strict"]) == 1


def test_who_sampled_is_told_to_sample_again(tmp_path, capsys):
    costless = replace(compute(1), attributes=())
    write_workload(job((costless,), (costless,)), tmp_path / "sample-00000" / "sample-00000")
    assert main(["validate", str(tmp_path)]) == 0
    assert "Write num_ops and tensor_size" in capsys.readouterr().out
    manifest = {
        "layerdag_version": "0.1.0",
        "checkpoint_sha256": "0",
        "format": "et",
        "samples": [{"name": "sample-00000"}],
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert main(["validate", str(tmp_path)]) == 0
    assert "Sample again" in capsys.readouterr().out


def test_jobs_of_one_rank_are_noted(tmp_path, capsys):
    write_workload(job((compute(1),)), tmp_path / "run")
    assert main(["validate", str(tmp_path / "run")]) == 0
    assert "1 of 1 have one rank; 'layerdag simulate' runs these" in capsys.readouterr().out
    assert main(["validate", str(tmp_path / "run"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["one_rank"] == told["checked"]
    assert main(["info", str(tmp_path / "run")]) == 0
    assert "ASTRA-sim itself needs two or more" in capsys.readouterr().out


def test_rules_are_listed(capsys):
    assert main(["validate", "--rules", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"acyclic", "known-group"} <= {rule["id"] for rule in told["traces"]}
    assert "layer-consistent" in {rule["id"] for rule in told["graphs"]}


def test_nothing_to_validate_is_wrong_use(tmp_path, capsys):
    assert main(["validate"]) == 2
    assert main(["validate", str(tmp_path)]) == 1
    assert "give a folder of .et files" in capsys.readouterr().err


def test_a_cyclic_flow_graph_is_an_error(tmp_path, capsys):
    nodes = "".join(f'<node id="{i}"/>' for i in range(2))
    edges = '<edge source="0" target="1"/><edge source="1" target="0"/>'
    (tmp_path / "g.graphml").write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        f'<graph edgedefault="directed">{nodes}{edges}</graph></graphml>'
    )
    assert main(["validate", str(tmp_path / "g.graphml")]) == 1
    assert "cycle" in capsys.readouterr().out


def written(workload: Workload, prefix: Path) -> Path:
    """Write a broken workload as it is; ``write_workload`` would refuse or mend it."""
    for rank, trace in enumerate(workload.traces):
        Path(f"{prefix}.{rank}.et").write_bytes(encode_trace(trace))
    if workload.groups:
        Path(f"{prefix}.comm_group.json").write_bytes(encode_groups(workload.groups))
    return prefix


@pytest.mark.parametrize("rule", ["message-tags", "no-self-dependency"])
def test_a_fixed_workload_validates_and_the_first_one_is_untouched(rule, tmp_path, capsys):
    prefix = written(BROKEN[rule], tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["validate", str(prefix), "--fix", "--out", str(tmp_path / "new" / "run")]) == 0
    out = capsys.readouterr().out
    assert f"fixed: [{rule}]" in out
    assert main(["validate", str(tmp_path / "new" / "run")]) == 0
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_what_is_left_is_told_and_fails(tmp_path, capsys):
    unequal = ((collective(1, size=8), compute(2, 1, 1)), (collective(1, size=16),))
    prefix = written(job(*unequal), tmp_path / "run")
    assert main(["validate", str(prefix), "--fix", "--out", str(tmp_path / "new")]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("fixed: [no-double-dependency]")
    assert second.startswith("error: [collectives-agree]")
    assert last == (
        f"1 rule fixed; 1 left, see above. 2 ranks written: layerdag simulate {tmp_path / 'new'}"
    )
    assert read_workload(tmp_path / "new").num_ranks == 2


def test_what_cannot_be_written_is_not(tmp_path, capsys):
    prefix = written(BEYOND_FIXING["acyclic"], tmp_path / "run")
    assert main(["validate", str(prefix), "--fix", "--out", str(tmp_path / "new"), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["written"] is None
    assert "cycle" in told["refused"]
    assert [row["rule"] for row in told["findings"]] == ["acyclic"]
    assert not list(tmp_path.glob("new*"))


def test_fixes_are_listed_for_scripts(tmp_path, capsys):
    prefix = written(BROKEN["no-self-dependency"], tmp_path / "run")
    assert main(["validate", str(prefix), "--fix", "--out", str(tmp_path / "new"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["valid"] is True
    assert told["written"] == str(tmp_path / "new")
    assert told["fixes"] == [
        {
            "rule": "no-self-dependency",
            "where": f"{prefix}.0.et",
            "node": 2,
            "done": "waits no more for itself",
            "count": 1,
        }
    ]


def test_a_sound_workload_is_written_as_it_is(tmp_path, capsys):
    write_workload(job((collective(1),), (collective(1),)), tmp_path / "run")
    assert main(["validate", str(tmp_path / "run"), "--fix", "--out", str(tmp_path / "new")]) == 0
    assert "nothing to fix. 2 ranks written as they were read" in capsys.readouterr().out
    assert (tmp_path / "new.0.et").read_bytes() == (tmp_path / "run.0.et").read_bytes()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--fix"], "say where with --out PREFIX"),
        (["--out", "x"], "--out needs --fix"),
        (["again", "--fix", "--out", "x"], "takes one workload"),
    ],
)
def test_flags_that_do_not_go_together_are_wrong_use(flags, said, tmp_path, capsys):
    prefix = written(BROKEN["no-self-dependency"], tmp_path / "run")
    assert main(["validate", str(prefix), *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_workload_that_is_there_is_not_replaced(tmp_path, capsys):
    prefix = written(BROKEN["no-self-dependency"], tmp_path / "run")
    assert main(["validate", str(prefix), "--fix", "--out", str(prefix)]) == 2
    assert "a workload lies there already" in capsys.readouterr().err


def test_findings_say_how_many_can_be_fixed(tmp_path, capsys):
    prefix = written(BROKEN["no-self-dependency"], tmp_path / "run")
    assert main(["validate", str(prefix)]) == 1
    assert "note: --fix --out PREFIX can fix 1 of these" in capsys.readouterr().out


def test_fixing_in_python_takes_a_path_a_workload_or_a_trace(tmp_path):
    broken = BROKEN["no-self-dependency"]
    prefix = written(broken, tmp_path / "run")
    for thing in (prefix, str(prefix), broken, broken.traces[0]):
        fixed = ld.fix(thing)
        assert fixed.is_valid
        assert [fix.rule.id for fix in fixed.fixes] == ["no-self-dependency"]


def test_a_graph_cannot_be_fixed(tmp_path):
    file = tmp_path / "flow.graphml"
    file.write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed">'
        '<node id="a"/><node id="b"/><edge source="a" target="b"/></graph></graphml>'
    )
    with pytest.raises(DataError, match="only traces can be fixed"):
        ld.fix(file)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    return written_sample_parts(job_checkpoint(folder), folder / "s")


def test_every_sample_is_checked_as_in_a_folder_of_each(tmp_path, capsys):
    from sample_parts import TEN

    checkpoint = job_checkpoint(tmp_path)
    manifest = write_samples(checkpoint, TEN, tmp_path / "each")
    assert json.loads(manifest.read_text())["caution"] == JOB.caution
    code = main(["validate", str(tmp_path / "each")])
    told = capsys.readouterr().out.splitlines()
    parts = written_sample_parts(checkpoint, tmp_path / "parts")
    assert main(["validate", str(parts)]) == code
    found = capsys.readouterr().out.splitlines()
    assert len(found) == len(told)
    assert found[-1] == told[-1]
    assert found[-1].startswith("10 workloads and graphs checked: ")


@pytest.mark.parametrize("inside", ["", "part-000000.tar"])
def test_what_sampled_jobs_cannot_guarantee_is_told(jobs, capsys, inside):
    main(["validate", str(jobs / inside)])
    assert capsys.readouterr().out.startswith(f"note: {JOB.caution}\n")
    main(["validate", str(jobs / inside), "--json"])
    assert json.loads(capsys.readouterr().out)["cautions"] == [JOB.caution]


def test_graphs_and_single_parts_are_checked(tmp_path, capsys):
    out = written_sample_parts(chain_checkpoint(tmp_path), tmp_path / "s")
    assert main(["validate", str(out / "part-000000.tar")]) in (0, 1)
    told = capsys.readouterr().out
    assert "4 workloads and graphs checked" in told
    assert JOB.caution not in told


def test_parts_are_what_json_lists(jobs, capsys):
    main(["validate", str(jobs), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["checked"] == [str(jobs / f"part-{i:06d}.tar") for i in range(3)]


def test_missing_and_damaged_parts_are_findings(jobs, tmp_path, capsys):
    for path in jobs.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "part-000001.tar").unlink()
    (tmp_path / "part-000002.tar").write_bytes(b"x" * 700)
    assert main(["validate", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    for part in (1, 2):
        assert f"error: [readable] {tmp_path}/part-00000{part}.tar" in told


def test_findings_name_the_sample(jobs, tmp_path):
    import tarfile

    part = tmp_path / "p.tar"
    with (
        tarfile.open(jobs / "part-000000.tar") as source,
        tarfile.open(part, "w", format=tarfile.USTAR_FORMAT) as target,
    ):
        for member in source:
            if not member.name.startswith("sample-00001.0"):
                target.addfile(member, source.extractfile(member))
    found = check_part(part)
    assert any("sample-00001" in finding.found for finding in found.findings)


def test_other_places_hold_no_parts(tmp_path):
    (tmp_path / "x.et").write_bytes(b"")
    assert parts_at(tmp_path) is None
    assert parts_at(tmp_path / "x.et") is None
    assert parts_at(tmp_path / "nothing") is None


def test_what_no_step_does_is_a_warning_that_names_a_node(tmp_path, capsys):
    step = ld.capture_model(*language()).workload()
    trace = step.traces[0]
    row = rows_of(trace, "aten::mm")[0]
    write_workload(step, tmp_path / "sound")
    broken = on_all_ranks(step, with_number(trace, row, "num_ops", 2 * 7919))
    write_workload(broken, tmp_path / "broken")
    assert main(["validate", str(tmp_path / "sound")]) == 0
    assert "product-shapes" not in capsys.readouterr().out
    assert main(["validate", str(tmp_path / "broken")]) == 0
    said = capsys.readouterr().out
    assert f"warning: [product-shapes] {tmp_path / 'broken'}.0.et: node {trace.id_N[row]}:" in said
    assert main(["validate", str(tmp_path / "broken"), "--strict", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["valid"] is True
    (found,) = [f for f in told["findings"] if f["rule"] == "product-shapes"]
    assert found["node"] == int(trace.id_N[row])
    assert [f.node for f in ld.validate(broken) if f.rule.id == "product-shapes"] == [found["node"]]


def test_rules_on_steps_are_listed(capsys):
    assert main(["validate", "--rules", "--json"]) == 0
    listed = {rule["id"] for rule in json.loads(capsys.readouterr().out)["steps"]}
    assert listed == set(WHOLE_PROGRAM_RULES)


def test_a_program_that_cannot_run_is_told_once(tmp_path, capsys):
    path = ld.program(*language(layers=1)).save(tmp_path / "it.program.json")
    data = json.loads(path.read_text())
    linear = next(n for n in data["nodes"] if n.get("operator") == "aten.linear.default")
    linear["arguments"][1]["parameter"] = [7, 7]
    path.write_text(json.dumps(data))
    assert main(["validate", str(path)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"error: [program-runs] {path}: node ")
    assert last == "1 workload or graph checked: 1 error, 0 warnings"


@pytest.mark.parametrize(
    ("outputs", "said"),
    [([999], "[999] are no nodes"), ([], "program-loss"), ([3], "program-loss")],
)
def test_what_a_program_returns_is_checked(tmp_path, capsys, outputs, said):
    path = ld.program(*language(layers=1)).save(tmp_path / "it.program.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "outputs": outputs}))
    main(["validate", str(path)])
    out = capsys.readouterr().out
    assert said in out
    assert "no finding" not in out
