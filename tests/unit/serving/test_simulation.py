"""From a model and requests to figures: files, processes, costs, capacity, what is written."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import layerdag as ld
from layerdag.cli.main import main
from layerdag.errors import ConfigError, DataError, UsageError
from layerdag.hardware.devices import DATA_SHEETS
from layerdag.plan import Plan
from layerdag.serving.iteration_work import BatchLoad, IterationWork, NumberFormats
from layerdag.serving.requests import Arrivals, Requests, read_requests
from layerdag.serving.settings import Machine, ServingSettings
from layerdag.workloads.transformer.shapes import PRESETS

LLAMA = PRESETS["llama3-8b"]


def of_prompts(lengths: np.ndarray) -> BatchLoad:
    """Return the load of one prompt an iteration."""
    tokens = np.asarray(lengths, np.float64)
    zero, one = np.zeros_like(tokens), np.ones_like(tokens)
    return BatchLoad(one, tokens, tokens * (tokens + 1) / 2, tokens, zero, zero, one)


def of_decodes(sequences: np.ndarray, context: np.ndarray) -> BatchLoad:
    """Return the load of sequences that decode, with their contexts' sum."""
    count = np.asarray(sequences, np.float64)
    zero = np.zeros_like(count)
    return BatchLoad(zero, zero, zero, zero, count, np.asarray(context, np.float64), count)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("own.csv", "arrival_s,input_tokens,output_tokens\n5,374,44\n5.5,396,109\n"),
        (
            "azure.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
            "2023-11-16 18:15:47.1805900,396,109\n",
        ),
        (
            "burst.csv",
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
            "5,ChatGPT,374,44,418,Conversation log\n5.5,GPT-4,396,109,505,API log\n",
        ),
        (
            "mooncake.jsonl",
            '{"timestamp": 27482, "input_length": 374, "output_length": 44, "hash_ids": [46]}\n'
            '{"timestamp": 27982, "input_length": 396, "output_length": 109, "hash_ids": [46]}\n',
        ),
    ],
)
def test_public_traces_and_ones_own_are_one(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    found = read_requests(path)
    assert found.notes == ()
    assert found.requests.arrival_s.tolist() == pytest.approx([0, 0.5])
    assert found.requests.input_tokens.tolist() == [374, 396]
    assert found.requests.output_tokens.tolist() == [44, 109]
    assert [*found.requests.hashes] == ([[46], [46]] if "mooncake" in name else [])


def test_what_a_trace_has_beside_is_told(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,input_tokens,output_tokens,user\n0,9,0,ann\n1,9,4,bob\n")
    found = read_requests(path)
    assert [note.word for note in found.notes] == ["user", "0 tokens"]
    assert len(found.requests) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,input_tokens,output_tokens\n0,1,1\n", "has the columns time"),
        ("arrival_s,input_tokens,output_tokens\n0,x,1\n", "row 1: input_tokens is 'x'"),
        ("arrival_s,input_tokens,output_tokens\n0,1\n", "line 2 has not as many cells"),
        ("arrival_s,input_tokens,output_tokens\n0,0,1\n", "no request has a prompt"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-99-16 18:15:46,1,1\n", "is no time"),
    ],
)
def test_a_trace_that_is_none_is_refused(tmp_path, text, said):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=said):
        read_requests(path)


def test_a_process_has_its_rate_its_variation_and_its_seed():
    for process, variation in (("poisson", 1.0), ("gamma", 3.0), ("constant", 0.0)):
        drawn = Arrivals(4.0, 40_000, process=process, variation=3.0, seed=7).draw()
        gaps = np.diff(drawn.arrival_s)
        assert gaps.mean() == pytest.approx(0.25, rel=0.05)
        assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.05, abs=1e-6)
    again = Arrivals(4.0, 40_000, process="constant", variation=3.0, seed=7).draw()
    assert (again.arrival_s == drawn.arrival_s).all()


@pytest.mark.parametrize(
    ("text", "low", "median", "high"),
    [
        ("100", 100, 100, 100),
        ("uniform:50-150", 50, 100, 150),
        ("lognormal:100,1", 1, 100, 100_000),
        ("exponential:144", 1, 100, 100_000),
    ],
)
def test_lengths_have_their_distribution(text, low, median, high):
    lengths = Arrivals(1.0, 20_000, inputs=text).draw().input_tokens
    assert low <= lengths.min() <= lengths.max() <= high
    assert np.median(lengths) == pytest.approx(median, rel=0.05)


@pytest.mark.parametrize("text", ["", "0", "normal:3", "uniform:9-3", "lognormal:1", "1e99"])
def test_a_length_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="length"):
        Arrivals(inputs=text).draw()


def test_weights_and_cache_are_those_of_the_model():
    # 8.03 B parameters; 32 layers of 8 heads of 128, keys and values, 2 bytes each.
    whole = IterationWork(LLAMA, Plan())
    assert whole.weight_bytes == pytest.approx(2 * LLAMA.parameters, rel=1e-3)
    assert whole.cached_bytes == 2 * 32 * 8 * 128 * 2
    for name in ("deepseek-v3", "qwen3-30b-a3b", "llama2-70b"):
        shape = PRESETS[name]
        assert IterationWork(shape, Plan()).weight_bytes == pytest.approx(
            2 * shape.parameters, rel=0.01
        )
    half = IterationWork(LLAMA, Plan(tensor=2), NumberFormats(kv_precision="fp8"))
    assert half.weight_bytes == pytest.approx(whole.weight_bytes / 2, rel=1e-3)
    assert half.cached_bytes == whole.cached_bytes / 4
    # Compressed keys and values are the same on all tensor ranks.
    latent = [IterationWork(PRESETS["deepseek-v3"], Plan(tensor=t)) for t in (1, 8)]
    assert latent[0].cached_bytes == latent[1].cached_bytes == 61 * 576 * 2


def test_operations_are_two_for_each_active_parameter_and_token():
    for name in ("llama3-8b", "qwen3-30b-a3b", "deepseek-v3"):
        shape = PRESETS[name]
        work = IterationWork(shape, Plan())
        load = of_prompts(np.array([[64.0]]))
        kernels = [*work.local(load), *work.of_experts(load.tokens[0])]
        done = sum(k.count * float(np.max(k.operations)) for k in kernels if k.family != "prefill")
        head = 2 * shape.vocabulary * shape.hidden
        active = shape.active_parameters - shape.embedding_parameters - head / 2
        assert done == pytest.approx(64 * 2 * active + head, rel=0.02)


@pytest.mark.parametrize("device", ["h100", "b200", "a100-80", "rtx_pro_6000", "mi300x"])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_no_iteration_is_faster_than_the_data_sheet(device, engine):
    machine = Machine.of(device)
    settings = ServingSettings(compute=device, engine=engine)
    eight = NumberFormats("fp8")
    for work in (
        IterationWork(LLAMA, Plan()),
        IterationWork(LLAMA, Plan(tensor=4)),
        IterationWork(LLAMA, Plan(data=2), eight),
    ):
        time, _ = machine.time(work, settings)
        ranks = np.ones((work.plan.data, 1))
        sequences = ranks * np.array([1, 8, 64])
        steps = time.seconds(of_decodes(sequences, sequences * 1000))
        moved = work.weight_bytes * 0.9 + 64 * 1000 * work.cached_bytes
        assert steps[-1] > moved / machine.sheet.bytes_per_s
        assert (np.diff(steps) > 0).all()
        prompt = time.seconds(of_prompts(ranks * np.array([4000.0])))
        rate = machine.sheet.fp8 if work.formats == eight else machine.sheet.bf16
        assert prompt[0] > 0.9 * 2 * LLAMA.parameters * 4000 / work.plan.tensor / rate


def test_every_device_with_a_sheet_serves():
    for name in DATA_SHEETS:
        result = ld.simulate_serving(
            "llama3.2-1b", Requests(np.zeros(1), np.array([9]), np.array([3])), compute=name,
            max_sequences=8, max_tokens=512,
        )  # fmt: skip
        assert result.summary()["answered"] == 1


def test_figures_are_those_of_the_requests():
    process = Arrivals(20.0, 300, "uniform:50-900", "uniform:1-200", seed=3)
    call = {"compute": "h100", "max_sequences": 32, "slo_ttft_ms": 200.0, "slo_tpot_ms": 12.0}
    result = ld.simulate_serving("llama3-8b", process, **call)
    figures = result.summary()
    assert figures == ld.simulate_serving("llama3-8b", process, **call).summary()
    rows = result.rows()
    assert figures["ttft_ms"]["mean"] == pytest.approx(rows["ttft_ms"].mean())
    several = rows["output_tokens"] > 1
    assert figures["tpot_ms"]["mean"] == pytest.approx(rows["tpot_ms"][several].mean())
    assert figures["latency_ms"]["p50"] in (rows["finish_s"] - rows["arrival_s"]) * 1e3
    kept = (rows["ttft_ms"] <= 200) & (~several | (rows["tpot_ms"] <= 12))
    assert 0 < kept.mean() < 1
    assert figures["goodput"]["share"] == pytest.approx(kept.mean())
    # Tokens after the first, each with the iteration that it took.
    spent = (rows["finish_s"] - rows["first_token_s"]).sum() * 1e3
    tokens = (rows["output_tokens"] - 1).sum()
    assert figures["itl_ms"]["mean"] == pytest.approx(spent / tokens, rel=1e-6)
    json.dumps(figures, allow_nan=False)


def test_a_fuller_device_is_slower_and_a_longer_plan_faster():
    calm, busy = (
        ld.simulate_serving("llama3-8b", Arrivals(rate, 200, seed=1)).summary()
        for rate in (1.0, 30.0)
    )
    assert calm["tpot_ms"]["mean"] < busy["tpot_ms"]["mean"]
    shared = ld.simulate_serving("llama3-8b", Arrivals(30.0, 200, seed=1), tensor=4).summary()
    assert shared["tpot_ms"]["mean"] < busy["tpot_ms"]["mean"]
    assert shared["devices"] == 4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tensr": 2}, "no setting 'tensr'. Did you mean 'tensor'"),
        ({"tensor": 3}, "3 tensor ranks do not divide 32 heads"),
        ({"expert": 2}, "2 expert ranks do not divide"),
        ({"precision": "int3"}, "precision is 'int3'"),
        ({"engine": "vlm"}, "engine 'vlm'. Did you mean 'vllm'"),
        ({"compute": "h10"}, "no data sheet of 'h10'"),
        ({"compute": "layers:x"}, "write one of these"),
        ({"memory_gib": 10.0}, "needs 1[0-9.]+ GiB of each"),
        ({"routing": "random"}, "no routing 'random'"),
        ({"max_tokens": 8}, "raise max_tokens"),
    ],
)
def test_what_cannot_be_is_said(settings, said):
    with pytest.raises(UsageError, match=said):
        ld.simulate_serving("llama3-8b", Arrivals(1.0, 2), **settings)


def write_layers(folder: Path, **extra: str) -> None:
    """Write layers that take 1 us a token, attention 1 us a decode and 0.001 us a cached token."""
    sizes = (1, 4, 16, 64, 256, 1024)
    dense = ["layer,tokens,time_us", *(f"qkv_proj,{n},{n}" for n in sizes)]
    drawn = ["layer,sequences,time_us", *(f"lm_head,{n},10" for n in sizes)]
    steps = (1, 8, 64)
    attention = ["prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"]
    attention += [f"0,0,{n},{kv},{n + 0.001 * n * kv}" for n in steps for kv in sizes]
    attention += [f"{n},{past},0,0,{n / 10 + 1}" for n in sizes for past in (0, 100)]
    attention += [
        f"{c},{p},{n},{kv},{c / 10 + 1 + n + 0.001 * n * kv}"
        for c in sizes for p in (0, 100) for n in steps for kv in sizes
    ]  # fmt: skip
    files = {"dense": dense, "per_sequence": drawn, "attention": attention}
    for name, lines in files.items():
        (folder / f"{name}.csv").write_text("\n".join([*lines, extra.get(name, "")]) + "\n")


def test_layers_that_were_timed_give_the_time_of_their_iterations(tmp_path):
    write_layers(tmp_path)
    machine = Machine.of(f"layers:{tmp_path},device=h100")
    settings = ServingSettings(host_us=0.0)
    time, _ = machine.time(IterationWork(LLAMA, Plan()), settings)
    sequences = np.array([[8.0]])
    taken = time.seconds(of_decodes(sequences, sequences * 64))
    per_layer = 8 + (8 + 0.001 * 8 * 64)
    host = 8 * 10
    assert taken[0] * 1e6 == pytest.approx(32 * per_layer + 10 + host, rel=0.01)
    prompt = time.seconds(of_prompts(np.array([[256.0]])))
    assert prompt[0] * 1e6 == pytest.approx(32 * (256 + 26.6) + 10 + 10, rel=0.01)


def test_a_layer_or_column_that_is_not_known_is_refused(tmp_path):
    write_layers(tmp_path, dense="conv,1,1")
    call = {"compute": f"layers:{tmp_path},device=h100"}
    with pytest.raises(DataError, match="the layer 'conv' is not known"):
        ld.simulate_serving("llama3-8b", Arrivals(1.0, 2), **call)
    (tmp_path / "dense.csv").write_text("layer,tokens,time_us,gpu\nqkv_proj,1,1,0\n")
    with pytest.raises(DataError, match="the column 'gpu' is not known"):
        ld.simulate_serving("llama3-8b", Arrivals(1.0, 2), **call)


def test_the_verb_writes_requests_a_timeline_and_a_picture(tmp_path, capsys):
    out, line, plot = (tmp_path / name for name in ("r.csv", "t.json", "p.svg"))
    words = "serving llama3-8b --rate 20 --requests 40 --seed 2 --replicas 2 --slo-ttft 100"
    files = ["--out", str(out), "--timeline", str(line), "--plot", str(plot)]
    assert main([*words.split(), *files, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert len(rows) == figures["answered"] == 40
    times = [float(row["ttft_ms"]) for row in rows]
    assert np.mean(times) == pytest.approx(figures["ttft_ms"]["mean"])
    events = json.loads(line.read_text())["traceEvents"]
    answers = [event for event in events if event["name"] == "answer"]
    assert {event["args"]["request"] for event in answers} == set(range(40))
    assert plot.read_text().startswith("<?xml")
    jsonl = tmp_path / "r.jsonl"
    assert main([*words.split(), "--out", str(jsonl)]) == 0
    assert "goodput" in capsys.readouterr().out
    assert len([json.loads(text) for text in jsonl.read_text().splitlines()]) == 40


def test_the_verb_asks_for_what_comes(capsys):
    assert main(["serving", "llama3-8b"]) == 2
    assert "--trace FILE, --rate R or --concurrency N" in capsys.readouterr().err
