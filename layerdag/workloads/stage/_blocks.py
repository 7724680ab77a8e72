"""The blocks of a model, joined from tables: one layer, embeddings, loss."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

from layerdag.workloads.stage import _tables as tables
from layerdag.workloads.stage._dims import Dim, parse_dim
from layerdag.workloads.stage._flags import StageFlags
from layerdag.workloads.stage._flat_weights import with_flat_weights
from layerdag.workloads.stage._forms import Form, Row, read_table

Block = dict[str, Row]
"""Rows by name, in order."""


@final
@dataclass(frozen=True)
class Blocks:
    """The parts of which copies make a model.

    Attributes:
        layer: A decoder layer; takes "input_norm.x" and "ffn_res.dy" from its neighbors, and gives
            "ffn_res.y" and "input_norm.dx" to them.
        embedding: Input embedding; gives "y", takes "dy".
        output: Output embedding; takes "x" and "dy", gives "y" and "dx".
        loss: Takes "y", gives "dy".
    """

    layer: Block
    embedding: Block
    output: Block
    loss: Block

    @classmethod
    def of(cls, flags: StageFlags) -> "Blocks":
        """Return the blocks of a model."""
        meaning = _meaning(flags)
        embedding = tables.EMBEDDING if flags.tpsp or flags.is_gated else tables.SPLIT_EMBEDDING
        width, vocabulary = Dim.symbol("D"), Dim.symbol("V")
        return cls(
            with_flat_weights(_layer(flags, meaning), flags.weight_sharded),
            _named("", embedding, {**meaning, "In": vocabulary, "Out": width}),
            _named("", embedding, {**meaning, "In": width, "Out": vocabulary}),
            _named("", tables.LOSS, meaning),
        )


def _meaning(flags: StageFlags) -> dict[str, Dim]:
    """Return what the names of tables mean in a model."""
    residual = "S/cp/tp" if flags.tpsp or flags.is_gated else "S/cp"
    meaning = {"Q": parse_dim(residual, {})}
    if not (flags.is_gated or flags.is_mixture):
        meaning["K"] = Dim.symbol("H")
    return meaning


def _named(prefix: str, table: str, meaning: Mapping[str, Dim]) -> Block:
    """Return a table's rows with a prefix to their names."""
    rows = (row.renamed(lambda name: prefix + name) for row in read_table(table, meaning))
    return {row.name: row for row in rows}


def _link(block: Block, links: Mapping[str, str]) -> Block:
    """Return the block with producers (values) of tensors from elsewhere (keys)."""
    return block | {name: block[name].linked(source) for name, source in links.items()}


def _layer(flags: StageFlags, meaning: Mapping[str, Dim]) -> Block:
    """Return a decoder layer."""
    block = (
        _named("input_norm.", tables.NORM, meaning)
        | _attention(flags, meaning)
        | _named("mha_res.", tables.RESIDUAL, meaning)
        | _named("post_attn_norm.", tables.NORM, meaning)
        | _feed_forward(flags, meaning)
        | _named("ffn_res.", tables.RESIDUAL, meaning)
    )
    into, out, back_in, back_out = (
        ("moe.x", "moe.y", "moe.dy", "moe.dx")
        if flags.is_mixture
        else ("ffn.x0", "ffn.xdown", "ffn.dxdown", "ffn.dx0")
    )
    links = {
        "mha.x": "input_norm.y",
        "mha_res.x1": "mha.o",
        "mha_res.x2": "input_norm.x",
        "mha.do": "mha_res.dx1",
        "post_attn_norm.x": "mha_res.y",
        "mha_res.dy": "post_attn_norm.dx",
        into: "post_attn_norm.y",
        "ffn_res.x1": out,
        "ffn_res.x2": "post_attn_norm.x",
        back_in: "ffn_res.dx1",
    }
    linked = _link(block, links)
    for name, branches in (
        ("input_norm.dy", ("mha.dx", "mha_res.dx2")),
        ("post_attn_norm.dy", (back_out, "ffn_res.dx2")),
    ):
        layout = linked[name].form.result
        form = Form("A", (layout, layout), layout, layout.elements)
        linked[name] = replace(linked[name], form=form, sources=branches)
    return linked


def _attention(flags: StageFlags, meaning: Mapping[str, Dim]) -> Block:
    """Return attention with its fused kernel."""
    grouped = flags.is_gated or flags.is_mixture
    kernel = tables.GROUPED_KERNEL if grouped else tables.KERNEL
    block = _named("mha.", tables.ATTENTION, meaning)
    block |= _named("mha.attn_kernel.", kernel, meaning)
    links = {"mha.attn": "mha.attn_kernel.qkv", "mha.attn_kernel.dqkv": "mha.dattn"}
    for name in "qkv":
        links[f"mha.attn_kernel.{name}"] = f"mha.{name}"
        links[f"mha.d{name}"] = f"mha.attn_kernel.d{name}"
    return _link(block, links)


def _feed_forward(flags: StageFlags, meaning: Mapping[str, Dim]) -> Block:
    """Return the feed-forward layer, or router and experts of one rank."""
    if not flags.is_mixture:
        table = tables.GATED_FEED_FORWARD if flags.is_gated else tables.FEED_FORWARD
        return _named("ffn.", table, meaning)
    local = range(flags.experts // flags.ep)
    block = _named("moe.", tables.ROUTER, meaning)
    for expert in local:
        block |= _expert(f"moe.{expert}.", meaning)
    for name, made in (("yrouted", "y"), ("dxrouted", "dx")):
        block, last = _summed(block, f"moe.{name}", [f"moe.{e}.ldis.{made}" for e in local])
        block = _link(block, {f"moe.{name}": last})
    return block


def _expert(prefix: str, meaning: Mapping[str, Dim]) -> Block:
    """Return an expert; tokens are spread evenly."""
    split = {"S": parse_dim("S*R/(X*ep)", {})}
    split["Q"] = parse_dim("S/cp/tp", split)
    ldis, ffn = f"{prefix}ldis.", f"{prefix}ffn."
    block = _named(ldis, tables.DISPATCH, meaning)
    block |= _named(ffn, tables.FEED_FORWARD, {**meaning, **split})
    links = {
        f"{ldis}x": "moe.xrouted",
        f"{ffn}x0": f"{ldis}x_expert",
        f"{ldis}y_expert": f"{ffn}xdown",
        f"{ldis}dy": "moe.dyrouted",
        f"{ffn}dxdown": f"{ldis}dy_expert",
        f"{ldis}dx_expert": f"{ffn}dx0",
    }
    return _link(block, links)


def _summed(block: Block, name: str, parts: list[str]) -> tuple[Block, str]:
    """Return the block with the sum of parts, and its name.

    STAGE adds them in a chain of which only the last operator counts operations; the others are
    left out of traces.
    """
    if len(parts) == 1:
        return block, parts[0]
    layout = block[parts[0]].form.result
    form = Form("E2", (layout, layout), layout, layout.elements)
    row = Row(f"{name}_r{len(parts) - 1}", form, (parts[0], parts[-1]), tuple(parts[1:-1]))
    return block | {row.name: row}, row.name
