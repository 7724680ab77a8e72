"""``layerdag serving``: how fast an engine answers requests, simulated."""

import argparse
from typing import TYPE_CHECKING, Any

from layerdag.cli.field_flags import add_fields, fields_given
from layerdag.cli.printing import notes_json, print_figures, print_notes
from layerdag.errors import UsageError
from layerdag.runtime.terminal import counted

if TYPE_CHECKING:
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

_SETTINGS = (
    "compute", "engine", "tensor", "data", "expert", "replicas", "prefill_replicas", "precision",
    "max_sequences", "max_tokens", "memory_share", "routing", "concurrency",
    "transfer_gb_per_s",
)  # fmt: skip
_ARRIVALS = ("rate", "requests", "inputs", "outputs", "process", "seed")
_FLAGS = {
    "transfer_gb_per_s": "--transfer",
    "inputs": "--input",
    "outputs": "--output",
    "process": "--arrivals",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    from layerdag.serving.requests import LENGTHS, Arrivals
    from layerdag.serving.settings import ServingSettings

    parser.add_argument("model", help="a model of 'layerdag workload --list', or a config.json")
    parser.add_argument("--trace", metavar="FILE",
        help="requests: .csv or .jsonl with arrival_s, input_tokens, output_tokens (and hash_ids), "
        "or as Azure, BurstGPT or Mooncake write them")  # fmt: skip
    add_fields(parser, Arrivals, _ARRIVALS, flags=_FLAGS, choices={"inputs": (LENGTHS,)})
    add_fields(parser, ServingSettings, _SETTINGS, flags=_FLAGS)
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
    from layerdag.runtime.files import require_name
    from layerdag.serving.requests import Arrivals, read_requests
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
        found = read_requests(args.trace, args.requests or 0)
        asked, notes = found.requests, found.notes
    else:
        if args.rate is None and not args.concurrency:
            raise UsageError("Say what comes: --trace FILE, --rate R or --concurrency N.")
        asked = Arrivals(**{"rate": 0.0, **fields_given(args, _ARRIVALS)})
    result = simulate_serving(
        args.model,
        asked,
        slo_ttft_ms=args.slo_ttft,
        slo_tpot_ms=args.slo_tpot,
        chunked=not args.whole_prompts,
        mixed=not args.separate_prompts,
        **fields_given(args, _SETTINGS),
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
