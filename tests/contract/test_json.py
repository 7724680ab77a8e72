"""``--json`` means one thing: the verb prints one JSON document on standard output, and no text."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from layerdag.cli.flags import VERBS_WITH_SETTINGS, flags_of_verb, help_text
from layerdag.cli.main import MODES, ROOM_OF, _command_of, _parser_of, main
from layerdag.cli.printing import JSON

HELP = "print JSON on standard output instead of text"
GPT2 = "workload gpt2 --data 2 --batch 2 --sequence 16"
CLUSTER = "{near: {device: h100, network: [{topology: Ring, ranks: 2, gb_per_s: 50}]}}"
STUDY = f"model: gpt2\nstep: {{batch: 2, sequence: 16}}\nplans: {{zero: 1}}\nclusters: {CLUSTER}\n"
SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["ring"],
    "collective-optimization": "localBWAware",
    "local-mem-bw": 50,
}
# Those that train, sample or run a script take longer, and are run with --json by their own tests.
COMMANDS = """
workload --list
GPT2
GPT2 --out new
workload stage --num_stacks 1
capture gpt2 --layers 1 --sequence 16
explore study.yaml
simulate job --preset small --compute h100 --report --what-if --trace t.json --nodes n.csv
sweep sweep.yml --out rows.csv
accuracy --by device
calibrate runs.csv --device h100 --link 1000,300 --out machine.json
info job
info flow.dot
validate job
validate --rules
diff job job
view job --out page.html
view flow.dot --out flow.svg
convert job --out copy
convert job --to json --out copy.json
convert flow.dot --to graphml --out copy.graphml
""".replace("GPT2", GPT2)


def parsers() -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of every verb, mode and action that has flags of its own."""
    for verb in ROOM_OF:
        if verb in VERBS_WITH_SETTINGS:
            continue
        for name in ([verb], *([verb, mode] for mode in MODES.get(verb, ()))):
            parser = _parser_of(name, _command_of(name))
            kinds = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
            inner = [action for kind in kinds for action in kind.choices.values()]
            yield from inner or [parser]


@pytest.mark.parametrize("parser", [*parsers()], ids=lambda parser: parser.prog)
def test_every_verb_has_the_same_flag_which_takes_no_file(parser):
    (flag,) = (action for action in parser._actions if JSON in action.option_strings)
    assert (flag.nargs, flag.const, flag.default, flag.help) == (0, True, False, HELP)


@pytest.mark.parametrize("verb", VERBS_WITH_SETTINGS)
def test_verbs_with_settings_have_it_too(verb):
    assert JSON in flags_of_verb(verb)
    assert f"{JSON} prints JSON" in " ".join(help_text(verb).split())


@pytest.fixture
def here(tmp_path, monkeypatch, capsys) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main([*GPT2.split(), "--out", "job"]) == 0
    for name, text in {
        "flow.dot": "digraph { a -> b }",
        "study.yaml": STUDY,
        "system.json": json.dumps(SYSTEM),
        "network.yml": "topology: [Ring]\nnpus_count: [2]\nbandwidth: [50]\nlatency: [500]\n",
        "sweep.yml": "workloads: {a: job}\nsystems: {s: system.json}\nnetworks: {n: network.yml}\n"
        "compute: [h100]\n",
        "runs.csv": "workload,seconds\njob,0.01\njob,0.02\n",
    }.items():
        Path(name).write_text(text)
    capsys.readouterr()
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS.split("\n")[1:-1])
def test_standard_output_is_one_json_document(command, here, capsys):
    assert main([*command.split(), JSON]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert document


def test_a_file_behind_it_is_refused_and_kept(here, capsys):
    Path("x.json").write_text("mine")
    assert main(["info", "job", "--json", "x.json"]) == 2
    assert "does not take 'x.json'" in capsys.readouterr().err
    assert Path("x.json").read_text() == "mine"
