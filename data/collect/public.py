"""Programs of public architectures: models that installed packages build from a configuration.

Each architecture (a model type of transformers, a family of timm or torchvision) is drawn in
several structures: depth, activation, grouped heads, biases, tied embeddings, attention written out
or fused. Each is recorded at three sizes, so that every number of its program is an expression of
few sizes, and gets a table of sizes that such models have. No weights are loaded.

Sources: transformers and timm (Apache-2.0), torchvision (BSD-3-Clause).
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from public_images import CLASSIFIERS
from torch import Tensor, nn
from torch.nn import functional as F

import layerdag as ld
from layerdag.programs.execution import NodeError, run_fake
from layerdag.programs.operators import in_place

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class PublicPlan:
    """One structure of an architecture.

    Attributes:
        run: Unique name.
        family: Architecture, such as "llama".
        kind: What it reads: a key of ``KINDS``.
        structure: What is the same at every size.
        table: Sizes that the program gets.
    """

    run: str
    family: str
    kind: str
    structure: Settings
    table: Settings


@dataclass(frozen=True)
class Sizes:
    """Sizes of one recording."""

    heads: int
    head: int
    groups: int
    hidden: int
    ffn: int
    vocabulary: int
    positions: int
    batch: int
    tokens: int
    image: int
    labels: int


_RECORDED = (
    Sizes(4, 24, 2, 96, 256, 1000, 512, 6, 48, 64, 10),
    Sizes(6, 32, 3, 192, 352, 1300, 640, 5, 80, 96, 14),
    Sizes(10, 40, 5, 400, 608, 1700, 768, 7, 56, 128, 18),
)
"""No ratio between two sizes of the first is that of the others, but for heads x head = hidden."""

_ALIASES: Mapping[str, Sequence[str]] = {
    "hidden": ("hidden_size", "d_model", "n_embd", "embed_dim", "dim"),
    "heads": (
        *("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads"),
        *("decoder_attention_heads", "n_heads"),
    ),
    "groups": ("num_key_value_heads", "num_kv_heads"),
    "head": ("head_dim", "d_kv", "d_head"),
    "ffn": (
        *("intermediate_size", "ffn_dim", "d_ff", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim"),
        *("hidden_dim", "ffn_hidden_size"),
    ),
    "vocabulary": ("vocab_size",),
    "positions": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"),
    "depth": (
        *("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"),
        *("n_layers", "num_decoder_layers"),
    ),
    "image": ("image_size",),
    "activation": ("hidden_act", "activation_function", "hidden_activation", "act_fn"),
}
_SWITCHES = (
    *("tie_word_embeddings", "attention_bias", "mlp_bias", "use_bias", "bias", "qkv_bias"),
    *("use_qkv_bias", "parallel_attn", "use_parallel_residual", "multi_query", "alibi"),
    *("new_decoder_architecture", "qk_layernorm", "use_qk_norm", "add_cross_attention_norm"),
    *("do_layer_norm_before", "use_absolute_embeddings", "use_mean_pooling", "use_swiglu_ffn"),
    *(
        "use_relative_position_bias",
        "use_shared_relative_position_bias",
        "mlp_only",
        "scale_embedding",
    ),
    *("encoder_normalize_before", "use_mask_token", "layernorm_embedding", "is_decoder"),
)
"""Settings of transformers that are on or off, where a configuration has them."""
_ACTIVATIONS = ("gelu", "relu", "silu", "gelu_new", "gelu_pytorch_tanh", "relu2")
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}

CAUSAL = (
    *("apertus", "arcee", "biogpt", "codegen", "cohere", "cohere2"),
    *("ctrl", "cwm", "diffllama", "doge"),
    *("ernie4_5", "exaone4", "falcon", "gemma"),
    *("gemma2", "gemma3_text", "glm", "glm4", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox"),
    *("gpt_neox_japanese", "gptj", "granite", "helium", "hunyuan_v1_dense", "hunyuan_v1_moe"),
    *("jais2",),
    *("lfm2", "llama", "ministral", "mistral"),
    *("nanochat", "nemotron", "olmo", "olmo2", "olmo3", "openai-gpt", "opt", "persimmon"),
    *("phi", "phi3", "qwen2", "qwen3", "seed_oss", "smollm3", "stablelm"),
    *("starcoder2", "vaultgemma", "xglm"),
)  # fmt: skip
MASKED = (
    *("albert", "bert", "camembert", "convbert", "data2vec-text", "deberta", "deberta-v2"),
    *("distilbert", "electra", "ernie", "eurobert", "fnet", "layoutlm"),
    *("megatron-bert", "mpnet", "nystromformer"),
    *("rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer"),
    *("xlm-roberta", "xlm-roberta-xl"),
)
SEQUENCES = (
    *("bart", "blenderbot", "blenderbot-small", "m2m_100"),
    *("marian", "mbart", "mt5", "mvp", "nllb-moe", "pegasus", "pegasus_x", "plbart", "prophetnet"),
    *("switch_transformers", "t5", "umt5"),
)
IMAGES = (
    *("beit", "convnext", "convnextv2", "data2vec-vision", "dinov2"),
    *("dinov2_with_registers", "ijepa", "mobilenet_v1"),
    *(
        "mobilenet_v2",
        "mobilevit",
        "mobilevitv2",
        "poolformer",
        "pvt",
        "pvt_v2",
        "regnet",
        "resnet",
    ),
    *("segformer", "swiftformer", "swin", "swinv2", "vit", "vit_msn"),
)
_SCALED = {
    "hidden_sizes": (2, 4, 6, 8, 10, 12),
    "hidden_size": (4, 4),
    "embed_dims": (2, 4, 6, 8),
    "encoder_hidden_size": (4, 4),
}


def public_plans(per: int = 16) -> Iterator[PublicPlan]:
    """Yield so many structures of each architecture, one of each before the next of any."""
    yield from sorted(_drawn_plans(per), key=lambda plan: plan.run.rpartition("_")[2])


def _drawn_plans(per: int) -> Iterator[PublicPlan]:
    """Yield the structures of each architecture, drawn from a seed of its own."""
    lists = (
        *(("causal", CAUSAL), ("masked", MASKED), ("sequences", SEQUENCES), ("images", IMAGES)),
        ("classifiers", tuple(CLASSIFIERS)),
    )
    for kind, families in lists:
        for family in families:
            draw = np.random.default_rng([*kind.encode(), *family.encode()])
            for at in range(per):
                structure = {
                    "depth": int(draw.integers(1, 5)),
                    "activation": str(draw.choice(_ACTIVATIONS)),
                    "grouped": ("all", "half", "one")[int(draw.integers(3))],
                    "written_out": bool(draw.integers(2)),
                    "dropout": bool(draw.integers(2)),
                    "switches": {name: bool(draw.integers(2)) for name in _SWITCHES},
                }
                yield PublicPlan(f"public_{family}_{at:02d}", family, kind, structure, _table(draw))


def _table(draw: np.random.Generator) -> Settings:
    heads = int(draw.choice((4, 6, 8, 12, 16)))
    return {
        "heads": heads,
        "head": int(draw.choice((32, 64, 64, 64, 80, 128))),
        "ffn": float(draw.choice((2, 8 / 3, 3.5, 4))),
        "vocabulary": int(draw.choice((8192, 16384, 30522, 32000, 50257, 65536))),
        "batch": int(draw.choice((1, 2, 4, 8, 16, 32))),
        "tokens": int(draw.choice((64, 128, 256, 512))),
        "labels": int(draw.choice((10, 100, 1000))),
    }


def program_of(plan: PublicPlan) -> ld.Program:
    """Return the program of a structure, with sizes as expressions and the plan's table."""
    modules, inputs = [], []
    for sizes in _RECORDED:
        torch.manual_seed(0)
        module, given = KINDS[plan.kind](plan, sizes)
        modules.append(module.train())
        inputs.append(given)
    program = ld.program(modules, inputs, name=plan.run)
    return _sized(_without_unused(program), plan.table)


def _without_unused(program: ld.Program) -> ld.Program:
    """Return a program without calls whose results nothing uses, such as those of a mask."""
    needed = {at for at, node in enumerate(program.nodes) if in_place(node.operator)}
    needed |= set(program.outputs)
    for at in reversed(range(len(program.nodes))):
        if at in needed:
            needed |= set(program.nodes[at].inputs)
    kept = sorted(needed)
    place = {at: new for new, at in enumerate(kept)}
    nodes = [
        replace(program.nodes[at], inputs=tuple(place[i] for i in program.nodes[at].inputs))
        for at in kept
    ]
    return replace(program, nodes=tuple(nodes), outputs=tuple(place[at] for at in program.outputs))


def _sized(program: ld.Program, table: Settings) -> ld.Program:
    """Return a program with the sizes of a plan wherever it still runs with them."""
    base = _RECORDED[0]
    hidden = table["heads"] * table["head"]
    known = {
        base.hidden: hidden,
        base.hidden // 2: hidden // 2,
        base.head: table["head"],
        base.head // 2: table["head"] // 2,
        3 * base.head: 3 * table["head"],
        base.heads: table["heads"],
        base.groups: table["heads"] // 2,
        base.ffn: int(table["ffn"] * hidden) // 16 * 16,
        base.vocabulary: table["vocabulary"],
        base.labels: table["labels"],
        base.positions: 512,
        base.positions + 2: 514,
        base.tokens // 2 - 1: table["tokens"] // 2,
    }
    wanted = {
        name: {"B": table["batch"], "n": table["tokens"]}[name[0]]
        if name in ("B0", "n0") and number != base.image
        else known[number]
        for name, number in program.sizes.items()
        if number in known or (name in ("B0", "n0") and number != base.image)
    }
    for kept in (
        wanted,
        {n: v for n, v in wanted.items() if n[0] in "Bnr"},
        {"B0": table["batch"]},
    ):
        resized = program.resize(**kept)
        try:
            run_fake(resized)
        except NodeError:
            continue
        return resized
    return program


class Scored(nn.Module):
    """A model with its loss: cross entropy of logits, else the mean of what it returns."""

    def __init__(self, model: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model
        self.call = call

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the loss; the last input is the target."""
        *given, target = inputs
        found = self.call(self.model, *given)
        logits = getattr(found, "logits", None)
        if logits is None:
            found = found if isinstance(found, Tensor) else found[0]
            return found.float().mean() if found.dim() != 2 else F.cross_entropy(found, target)
        return F.cross_entropy(logits.flatten(0, -2), target.flatten())


def _configuration(plan: PublicPlan, sizes: Sizes) -> Any:
    """Return transformers' configuration of a structure at some sizes."""
    import transformers

    blank = transformers.AutoConfig.for_model(plan.family)
    given = {
        **_numbers(blank, plan.structure, sizes),
        **_probabilities(blank, plan.structure),
        **{n: plan.structure["switches"][n] for n in _SWITCHES if _is(blank, n, bool)},
        **{name: n for name, n in _TOKENS.items() if getattr(blank, name, None) is not None},
        **_of_stages(blank, plan.structure, sizes),
    }
    if plan.family == "diffllama":
        given["attention_dropout"] = 0.0
    if hasattr(blank, "rotary_dim"):
        given["rotary_dim"] = sizes.head
    if hasattr(blank, "attention_types"):
        given["attention_types"] = [[["global"], plan.structure["depth"]]]
    if plan.kind == "images":
        given["num_labels"] = sizes.labels
        if _is(blank, "patch_size", int):
            given["patch_size"] = 16 if blank.patch_size >= 14 else blank.patch_size
    return transformers.AutoConfig.for_model(plan.family, **given)


def _is(config: Any, name: str, kind: type | tuple[type, ...]) -> bool:
    return isinstance(getattr(config, name, None), kind)


def _numbers(blank: Any, structure: Settings, sizes: Sizes) -> dict[str, Any]:
    """Return the sizes and words that a configuration has, under the names that it gives them."""
    values = {
        **{name: getattr(sizes, name) for name in _ALIASES if hasattr(sizes, name)},
        "depth": structure["depth"],
        "activation": structure["activation"],
        "groups": {"all": sizes.heads, "half": sizes.groups, "one": 1}[structure["grouped"]],
    }
    given = {}
    for role, names in _ALIASES.items():
        for name in names:
            unset = getattr(blank, name, None) is None
            computed = isinstance(getattr(type(blank), name, None), property)
            optional = hasattr(blank, name) and name in ("num_key_value_heads", "head_dim")
            renamed = name in getattr(blank, "attribute_map", {})
            if (unset and not optional) or computed or renamed or _is(blank, name, (list, tuple)):
                continue
            given[name] = values[role]
    return given


def _probabilities(blank: Any, structure: Settings) -> dict[str, float]:
    """Return every dropout that a configuration has: 0.1 or none, and never of whole paths."""
    names = [n for n in vars(blank) if ("dropout" in n or n.endswith("_pdrop")) or "drop_path" in n]
    return {
        name: 0.1 if structure["dropout"] and "path" not in name else 0.0
        for name in names
        if _is(blank, name, float)
    }


def _of_stages(blank: Any, structure: Settings, sizes: Sizes) -> dict[str, Any]:
    """Return the widths and depths of models in stages."""
    given: dict[str, Any] = {}
    for name, shares in _SCALED.items():
        if _is(blank, name, (list, tuple)) and getattr(blank, name):
            stages = range(len(getattr(blank, name)))
            given[name] = [sizes.head * shares[min(at, len(shares) - 1)] for at in stages]
    if _is(blank, "depths", (list, tuple)):
        given["depths"] = [min(structure["depth"], 2)] * len(blank.depths)
    return given


def _built(plan: PublicPlan, sizes: Sizes, maker: str) -> nn.Module:
    import transformers

    config = _configuration(plan, sizes)
    implementation = "eager" if plan.structure["written_out"] else "sdpa"
    auto = getattr(transformers, maker)
    try:
        return _with_plain_experts(auto.from_config(config, attn_implementation=implementation))
    except ValueError as error:
        if "does not support an attention implementation" not in str(error):
            raise
        return _with_plain_experts(auto.from_config(config, attn_implementation="eager"))


def _with_plain_experts(model: nn.Module) -> nn.Module:
    """Return a model whose experts are batched products, which every device can run."""
    if any("Experts" in type(module).__name__ for module in model.modules()):
        model.config._experts_implementation = "batched_mm"  # type: ignore[union-attr]
    return model


def _ids(batch: int, tokens: int) -> Tensor:
    return torch.full((batch, tokens), 3)


def _causal(plan: PublicPlan, sizes: Sizes) -> tuple[nn.Module, tuple[Tensor, ...]]:
    model = _built(plan, sizes, "AutoModelForCausalLM")
    cached = "use_cache" in inspect.signature(model.forward).parameters
    given = {"use_cache": False} if cached else {}
    ids = _ids(sizes.batch, sizes.tokens)
    return Scored(model, lambda m, i: m(input_ids=i, **given)), (ids, ids.clone())


def _masked(plan: PublicPlan, sizes: Sizes) -> tuple[nn.Module, tuple[Tensor, ...]]:
    model = _built(plan, sizes, "AutoModelForMaskedLM")
    ids = _ids(sizes.batch, sizes.tokens)
    return Scored(model, lambda m, i: m(input_ids=i)), (ids, ids.clone())


def _sequences(plan: PublicPlan, sizes: Sizes) -> tuple[nn.Module, tuple[Tensor, ...]]:
    model = _built(plan, sizes, "AutoModelForSeq2SeqLM")
    ids, out = _ids(sizes.batch, sizes.tokens), _ids(sizes.batch, sizes.tokens // 2 - 1)
    call = lambda m, i, d: m(input_ids=i, decoder_input_ids=d, use_cache=False)  # noqa: E731
    return Scored(model, call), (ids, out, out.clone())


def _images(plan: PublicPlan, sizes: Sizes) -> tuple[nn.Module, tuple[Tensor, ...]]:
    model = _built(plan, sizes, "AutoModelForImageClassification")
    image = torch.zeros(sizes.batch, 3, sizes.image, sizes.image)
    return (
        Scored(model, lambda m, x: m(pixel_values=x)),
        (image, torch.zeros(sizes.batch, dtype=torch.long)),
    )


def _classifiers(plan: PublicPlan, sizes: Sizes) -> tuple[nn.Module, tuple[Tensor, ...]]:
    model = CLASSIFIERS[plan.family](plan.structure, sizes)
    side = sizes.image * (2 if plan.family == "timm-swin" else 1)
    image = torch.zeros(sizes.batch, 3, side, side)
    return Scored(model, lambda m, x: m(x)), (image, torch.zeros(sizes.batch, dtype=torch.long))


KINDS: Mapping[str, Callable[[PublicPlan, Sizes], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "causal": _causal,
    "masked": _masked,
    "sequences": _sequences,
    "images": _images,
    "classifiers": _classifiers,
}
