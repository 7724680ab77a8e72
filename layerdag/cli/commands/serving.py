"""``layerdag serving``: how fast an engine answers requests, simulated."""

import argparse
from typing import TYPE_CHECKING, Any

from layerdag.cli.printing import notes_json, print_figures, print_notes
from layerdag.errors import UsageError
from layerdag.runtime.terminal import counted

if TYPE_CHECKING:
    from layerdag.serving.requests import Arrivals
    from layerdag.serving.result import ServingResult


SUMMARY = (
    "Simulate an LLM serving engine: requests of a trace or a process, continuous batching, paged "
    "KV cache; latencies, throughput, goodput."
)
EXAMPLE = (
    "  layerdag serving llama3-8b --rate 8 --requests 500 --input uniform:200-2000 \\\n"
    "      --output exponential:300 --compute h100 --slo-ttft 500 --slo-tpot 50\n"
    "  layerdag serving llama3-70b --trace AzureLLMInferenceTrace_conv.csv --compute h200 \\\n"
    "      --tensor 4 --replicas 2 --precision fp8 --out requests.csv --timeline t.json\n"
    "  layerdag serving deepseek-v3 --concurrency 64 --requests 640 --compute h200 --tensor 8 \\\n"
    "      --expert 8 --precision fp8 --engine sglang --json\n"
    "  layerdag serving llama3-8b --trace mooncake.jsonl --routing prefix --replicas 2 \\\n"
    "      --prefill-replicas 1 --transfer 50"
)

_COUNTS = (
    ("tensor", "ranks that share each layer"),
    ("data", "ranks of an instance with sequences of their own (attention data parallel)"),
    ("expert", "ranks that whole experts are spread over"),
    ("replicas", "instances; with --prefill-replicas those that decode"),
    ("prefill-replicas", "instances for prompts alone; 0: the same do both"),
    ("prefill-tensor", "tensor ranks of these; 0: as many"),
    ("max-sequences", "most sequences of a rank at a time (max_num_seqs)"),
    ("max-tokens", "most tokens of an iteration of a rank (max_num_batched_tokens)"),
    ("block-tokens", "tokens of a block of the cache"),
    ("kv-blocks", "blocks of the cache of a rank; 0: what the memory leaves"),
    ("concurrency", "most requests at a time; each waits for another to end; 0: no limit"),
)
_NUMBERS = (
    ("memory-share", "share of the memory that an engine takes (gpu_memory_utilization)"),
    ("memory-gib", "memory of a device; 0: of its data sheet"),
    ("transfer", "GB/s at which a cache goes from prefill to decode"),
    ("transfer-ms", "what such a transfer costs beside"),
    ("host-us", "host time of an iteration; negative: as fitted"),
)
_WORDS = (
    ("compute", "device, or layers:FOLDER,device=NAME: layers timed on the machine itself"),
    ("engine", "whose host times are added: vllm, sglang, trtllm"),
    ("precision", "of weights and products: bf16, fp8, nvfp4, int4_wo"),
    ("expert-precision", "of experts, where it is another one"),
    ("kv-precision", "of the cache: bf16, fp8"),
    ("routing", "least-loaded, round-robin, prefix (to the rank that holds most of the prompt)"),
)
_SETTING = {"transfer": "transfer_gb_per_s"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    from layerdag.serving.requests import LENGTHS, Arrivals
    from layerdag.serving.settings import ServingSettings

    usual, drawn = ServingSettings(), Arrivals()
    parser.add_argument("model", help="a model of 'layerdag workload --list', or a config.json")
    parser.add_argument("--trace", metavar="FILE",
        help="requests: .csv or .jsonl with arrival_s, input_tokens, output_tokens (and hash_ids), "
        "or as Azure, BurstGPT or Mooncake write them")  # fmt: skip
    parser.add_argument("--rate", type=float, metavar="R", help="requests per second")
    parser.add_argument("--arrivals", default=drawn.process, metavar="WORD",
        help="poisson, gamma or constant gaps (default: %(default)s)")  # fmt: skip
    parser.add_argument("--variation", type=float, default=drawn.variation, metavar="X",
        help="coefficient of variation of gamma gaps (default: %(default)s)")  # fmt: skip
    parser.add_argument("--requests", type=int, metavar="N",
        help=f"how many (default: {drawn.requests}, or all of the trace)")  # fmt: skip
    parser.add_argument("--input", default=drawn.inputs, metavar="TOKENS",
        help=f"length of prompts: {LENGTHS} (default: %(default)s)")  # fmt: skip
    parser.add_argument("--output", default=drawn.outputs, metavar="TOKENS",
        help="length of answers (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=drawn.seed, help="seed of all draws")
    parser.add_argument("--hash-tokens", type=int, default=512, metavar="N",
        help="tokens that each of hash_ids stands for (default: %(default)s)")  # fmt: skip
    for words, kind, metavar in (
        (_WORDS, str, "WORD"),
        (_COUNTS, int, "N"),
        (_NUMBERS, float, "X"),
    ):
        for flag, text in words:
            default = getattr(usual, _SETTING.get(flag, flag.replace("-", "_")))
            shown = f" (default: {default})" if default != "" and "0:" not in text else ""
            parser.add_argument(f"--{flag}", type=kind, default=default, metavar=metavar,
                                help=text + shown)  # fmt: skip
    parser.add_argument("--whole-prompts", action="store_true",
        help="never cut a prompt into chunks")  # fmt: skip
    parser.add_argument("--separate-prompts", action="store_true",
        help="prompts have iterations of their own, in which nothing decodes")  # fmt: skip
    parser.add_argument("--slo-ttft", type=float, default=0.0, metavar="MS",
        help="most time to the first token of a request that counts for goodput")  # fmt: skip
    parser.add_argument("--slo-tpot", type=float, default=0.0, metavar="MS",
        help="most time per further token of such a request")  # fmt: skip
    parser.add_argument("--out", metavar="FILE", help="one row per request, .csv or .jsonl")
    parser.add_argument("--timeline", metavar="FILE", help="Chrome trace of iterations, requests")
    parser.add_argument("--plot", metavar="FILE", help="latencies, batches, cache: .png or .svg")


def run(args: argparse.Namespace) -> int:
    """Simulate, write and print."""
    from layerdag.cli.main import gc_disabled, single_threaded_blas

    single_threaded_blas()
    with gc_disabled():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from layerdag.runtime.files import require_name
    from layerdag.serving.requests import read_requests
    from layerdag.serving.result import draw, write_requests, write_serving_timeline
    from layerdag.serving.simulation import simulate_serving

    for path, endings in ((args.out, (".csv", ".jsonl")), (args.plot, (".png", ".svg"))):
        if path:
            require_name(path, endings)
    notes: tuple[Any, ...] = ()
    asked: Any = None
    if args.trace:
        if args.rate is not None:
            raise UsageError("--trace has arrivals of its own; leave --rate out.")
        found = read_requests(args.trace, args.requests or 0, args.hash_tokens)
        asked, notes = found.requests, found.notes
    else:
        asked = _process(args)
    flags = [flag.replace("-", "_") for flag, _ in (*_WORDS, *_COUNTS, *_NUMBERS)]
    settings = {_SETTING.get(name, name): getattr(args, name) for name in flags}
    result = simulate_serving(
        args.model,
        asked,
        slo_ttft_ms=args.slo_ttft,
        slo_tpot_ms=args.slo_tpot,
        chunked=not args.whole_prompts,
        mixed=not args.separate_prompts,
        **settings,
    )
    if args.out:
        write_requests(result, args.out)
    if args.timeline:
        write_serving_timeline(result, args.timeline)
    if args.plot:
        draw(result, args.plot)
    notes = (*result.notes, *notes)
    figures = {**result.summary(), "notes": notes_json(notes)}
    print_figures(args.json, figures, lines(result, figures))
    print_notes(notes)
    return 0


def _process(args: argparse.Namespace) -> "Arrivals":
    from layerdag.serving.requests import Arrivals

    if args.rate is None and not args.concurrency:
        raise UsageError("Say what comes: --trace FILE, --rate R or --concurrency N.")
    usual = Arrivals()
    return Arrivals(
        rate=args.rate or 0.0,
        requests=usual.requests if args.requests is None else args.requests,
        inputs=args.input,
        outputs=args.output,
        process=args.arrivals,
        variation=args.variation,
        seed=args.seed,
    )


def lines(result: "ServingResult", figures: dict[str, Any]) -> list[str]:
    """Return the figures as a table."""
    refused = f", {figures['refused']:,} refused" if figures["refused"] else ""
    made = [
        f"{figures['model']} on {counted(figures['devices'], 'device')}: "
        f"{figures['answered']:,} of {counted(figures['requests'], 'request')} answered in "
        f"{figures['duration_s']:,.1f} s{refused}",
        "",
        f"{'ms':<10} {'mean':>11} {'p50':>11} {'p90':>11} {'p99':>11}",
    ]
    for name in ("ttft", "tpot", "itl", "latency"):
        row = figures[f"{name}_ms"]
        if row:
            made.append(f"{name.upper() if name != 'latency' else name:<10} "
                        + " ".join(f"{value:>11,.2f}" for value in row.values()))  # fmt: skip
    made += [
        "",
        f"{figures['requests_per_s']:,.3f} requests/s, {figures['output_tokens_per_s']:,.1f} "
        f"output tokens/s ({figures['output_tokens_per_s_per_device']:,.1f} a device)",
    ]
    if "goodput" in figures:
        good = figures["goodput"]
        made.append(f"goodput {good['requests_per_s']:,.3f} requests/s: {good['share']:.1%} kept "
                    "the limits")  # fmt: skip
    if figures["reused_tokens"]:
        made.append(f"{figures['reused_tokens']:,} tokens of prompts were found in a cache")
    if figures["preemptions"]:
        made.append(f"{counted(figures['preemptions'], 'preemption')}: the cache was full")
    for number, found in enumerate(figures["instances"]):
        if not found["iterations"]:
            made.append(f"instance {number}: never used")
            continue
        made.append(
            f"instance {number}: {counted(found['iterations'], 'iteration')}, busy "
            f"{found['busy']:.0%}, {found['sequences']['mean']:.1f} sequences (most "
            f"{found['sequences']['most']}), cache {found['kv_held']['mean']:.0%} (most "
            f"{found['kv_held']['most']:.0%} of {found['kv_blocks']:,} blocks)"
        )
    made += ["", *(f"note: {text}" for text in figures["told"])]
    return [*made, f"note: not modeled: {', '.join(figures['not_modeled'])}"]
