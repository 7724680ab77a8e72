"""The trace of a model's step, cut into pipeline stages."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, final

from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.builder import NodeAppender
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire
from layerdag.workloads.stage.flags import StageFlags
from layerdag.workloads.stage.operators import (
    ATTENTION,
    DISPATCH,
    EMBEDDING,
    FEED_FORWARD,
    GATED_FEED_FORWARD,
    GROUPED_KERNEL,
    KERNEL,
    LOSS,
    NORM,
    RESIDUAL,
    ROUTER,
    SPLIT_EMBEDDING,
    OperatorForm,
    Row,
    TensorSharding,
    added,
    collectives,
    placeholder,
    read_table,
    with_flat_weights,
)
from layerdag.workloads.stage.sizes import Dim, parse_dim

Block = dict[str, Row]
"""Rows by name, in order."""


@final
@dataclass(frozen=True)
class ModelBlocks:
    """The parts of which copies make a model."""

    layer: Block  # takes "input_norm.x" and "ffn_res.dy", gives "ffn_res.y" and "input_norm.dx"
    embedding: Block  # of the input; gives "y", takes "dy"
    output: Block  # the output embedding; takes "x" and "dy", gives "y" and "dx"
    loss: Block  # takes "y", gives "dy"

    @classmethod
    def from_flags(cls, flags: StageFlags) -> "ModelBlocks":
        """Return the blocks of a model."""
        residual = "S/cp/tp" if flags.tpsp or flags.is_gated else "S/cp"
        meaning = {"Q": parse_dim(residual, {})}
        if not (flags.is_gated or flags.is_mixture):
            meaning["K"] = Dim.symbol("H")
        embedding = EMBEDDING if flags.tpsp or flags.is_gated else SPLIT_EMBEDDING
        width, vocabulary = Dim.symbol("D"), Dim.symbol("V")
        return cls(
            with_flat_weights(_layer(flags, meaning), flags.weight_sharded),
            _named("", embedding, {**meaning, "In": vocabulary, "Out": width}),
            _named("", embedding, {**meaning, "In": width, "Out": vocabulary}),
            _named("", LOSS, meaning),
        )


def _named(prefix: str, table: str, meaning: Mapping[str, Dim]) -> Block:
    rows = (row.renamed(lambda name: prefix + name) for row in read_table(table, meaning))
    return {row.name: row for row in rows}


def _link(block: Block, links: Mapping[str, str]) -> Block:
    """Return the block with producers (values) of tensors from elsewhere (keys)."""
    return block | {name: block[name].linked(source) for name, source in links.items()}


def _layer(flags: StageFlags, meaning: Mapping[str, Dim]) -> Block:
    block = (
        _named("input_norm.", NORM, meaning)
        | _attention(flags, meaning)
        | _named("mha_res.", RESIDUAL, meaning)
        | _named("post_attn_norm.", NORM, meaning)
        | _feed_forward(flags, meaning)
        | _named("ffn_res.", RESIDUAL, meaning)
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
        linked[name] = replace(linked[name], form=added(layout), sources=branches)
    return linked


def _attention(flags: StageFlags, meaning: Mapping[str, Dim]) -> Block:
    grouped = flags.is_gated or flags.is_mixture
    kernel = GROUPED_KERNEL if grouped else KERNEL
    block = _named("mha.", ATTENTION, meaning)
    block |= _named("mha.attn_kernel.", kernel, meaning)
    links = {"mha.attn": "mha.attn_kernel.qkv", "mha.attn_kernel.dqkv": "mha.dattn"}
    for name in "qkv":
        links[f"mha.attn_kernel.{name}"] = f"mha.{name}"
        links[f"mha.d{name}"] = f"mha.attn_kernel.d{name}"
    return _link(block, links)


def _feed_forward(flags: StageFlags, meaning: Mapping[str, Dim]) -> Block:
    if not flags.is_mixture:
        table = GATED_FEED_FORWARD if flags.is_gated else FEED_FORWARD
        return _named("ffn.", table, meaning)
    local = range(flags.experts // flags.ep)
    block = _named("moe.", ROUTER, meaning)
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
    block = _named(ldis, DISPATCH, meaning)
    block |= _named(ffn, FEED_FORWARD, {**meaning, **split})
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
    form = added(block[parts[0]].form.result, "E2")
    row = Row(f"{name}_r{len(parts) - 1}", form, (parts[0], parts[-1]), tuple(parts[1:-1]))
    return block | {row.name: row}, row.name


@final
@dataclass(eq=False)
class StepTensor:
    """A tensor of the step, under STAGE's name, with the pipeline stage that makes it.

    Its operands are ``sources``; those in ``after`` must be there first, too.
    """

    name: str
    form: OperatorForm
    stage: int
    sources: tuple["StepTensor", ...] = ()
    after: tuple["StepTensor", ...] = ()


_Placed = list[tuple[Row, int]]
"""Rows with their stages."""


def tensors_of_step(flags: StageFlags) -> list[StepTensor]:
    """Return all tensors of a step, in STAGE's order.

    Those of each micro-batch come first, then gradients summed over micro-batches, then weights
    and their updates.
    """
    rows = _rows_of_model(flags)
    weights = {row.name: StepTensor(f"{row.name}@0", row.form, s) for row, s in rows if row.weight}
    gradients: dict[str, list[StepTensor]] = {}
    found: list[StepTensor] = []
    for number in range(flags.micro_batches):
        made = dict(weights)
        for row, stage in rows:
            if not row.weight:
                made[row.name] = StepTensor(f"mb{number}.{row.name}@0", row.form, stage)
                found.append(made[row.name])
        for row, _ in rows:
            tensor = made[row.name]
            tensor.sources = tuple(made[name] for name in row.sources)
            tensor.after = tuple(made[name] for name in row.after)
            if row.gradient_of:
                gradients.setdefault(row.gradient_of, []).append(tensor)
    summed = {}
    for weight, (first, *others) in gradients.items():
        name, form = first.name.partition(".")[2], first.form.over_micro_batches
        summed[weight] = StepTensor(name, form, first.stage, (first,), tuple(others))
    updates = []
    for name, held in weights.items():
        after, operands = f"{held.name.removesuffix('@0')}@1", (held, summed[name])
        updates.append(StepTensor(after, held.form.updated, held.stage, operands))
    return [*found, *summed.values(), *weights.values(), *updates]


def _rows_of_model(flags: StageFlags) -> _Placed:
    blocks, last = ModelBlocks.from_flags(flags), flags.num_stacks - 1
    placed: _Placed = []
    for layer, stage in enumerate(flags.stage_of_layer):
        links = {
            "input_norm.x": f"transformer.{layer - 1}.ffn_res.y" if layer else "in_emb.y",
            "ffn_res.dy": (
                f"transformer.{layer + 1}.input_norm.dx" if layer < last else "out_emb.dx"
            ),
        }
        placed += _copied(blocks.layer, f"transformer.{layer}.", links, stage)
    end = flags.stage_of_output
    first, final_ = "transformer.0.input_norm.dx", f"transformer.{last}.ffn_res.y"
    placed += _copied(blocks.embedding, "in_emb.", {"dy": first}, 0)
    placed += _copied(blocks.output, "out_emb.", {"x": final_, "dy": "loss.dy"}, end)
    placed += _copied(blocks.loss, "loss.", {"y": "out_emb.y"}, end)
    return placed


def _copied(block: Block, prefix: str, links: dict[str, str], stage: int) -> _Placed:
    copied = ((name, row.renamed(lambda inner: prefix + inner)) for name, row in block.items())
    return [(row.linked(links[name]) if name in links else row, stage) for name, row in copied]


def traces_of_stages(flags: StageFlags) -> tuple[Trace, ...]:
    """Return the trace of each stage.

    Groups and peers are those of all its ranks: ``pg_name`` holds the degree, ``comm_src`` and
    ``comm_dst`` the stage.
    """
    cut = _Cut.from_tensors(tensors_of_step(flags), flags.pp)
    sizes = _Sizes(flags)
    return tuple(_StageTrace(sizes, cut, stage).trace() for stage in range(flags.pp))


class _Message(NamedTuple):
    """A tensor that another stage needs, what that stage has in its place, and a number."""

    tensor: StepTensor
    shadow: StepTensor
    tag: int


class _Cut(NamedTuple):
    """The step cut into stages."""

    tensors: tuple[list[StepTensor], ...]  # of each stage, with shadows of what others send
    sent: dict[StepTensor, list[_Message]]  # by what is sent
    received: dict[StepTensor, _Message]  # by shadow

    @classmethod
    def from_tensors(cls, tensors: Iterable[StepTensor], stages: int) -> "_Cut":
        """Cut a step."""
        by_stage: tuple[list[StepTensor], ...] = tuple([] for _ in range(stages))
        for tensor in tensors:
            by_stage[tensor.stage].append(tensor)
        sent: dict[StepTensor, list[_Message]] = defaultdict(list)
        received: dict[StepTensor, _Message] = {}
        for stage, found in enumerate(by_stage):
            shadows: dict[StepTensor, StepTensor] = {}
            for tensor in found:
                tensor.sources = tuple(_near(source, stage, shadows) for source in tensor.sources)
            for remote, shadow in shadows.items():
                message = _Message(remote, shadow, len(received))
                received[shadow] = message
                sent[remote].append(message)
            found += shadows.values()
        return cls(by_stage, sent, received)


def _near(source: StepTensor, stage: int, shadows: dict[StepTensor, StepTensor]) -> StepTensor:
    if source.stage == stage:
        return source
    if source not in shadows:
        form = placeholder(source.form.result)
        shadows[source] = StepTensor(f"shadow_{source.name}", form, stage)
    return shadows[source]


class _Cost(NamedTuple):
    is_nothing: bool
    operations: int
    elements: int


class _Sizes:
    def __init__(self, flags: StageFlags) -> None:
        self._numbers = flags.numbers
        self._degrees = [degree for degree, ranks in flags.degrees.items() if ranks > 1]
        self._costs: dict[OperatorForm, _Cost] = {}
        self._collectives: dict[
            tuple[TensorSharding, TensorSharding], tuple[list[tuple[str, CollectiveType]], int]
        ] = {}

    def cost(self, form: OperatorForm) -> _Cost:
        """Return operations and elements of a form's result."""
        if form not in self._costs:
            operations = form.operations.value(self._numbers)
            elements = int(float(form.result.elements.value(self._numbers)))
            self._costs[form] = _Cost(not operations, int(float(operations)), elements)
        return self._costs[form]

    def collectives(
        self, made: TensorSharding, expected: TensorSharding
    ) -> tuple[list[tuple[str, CollectiveType]], int]:
        """Return the collectives of an operand, and their size: the elements of what was made."""
        key = (made, expected)
        if key not in self._collectives:
            found = collectives(made, expected, self._degrees)
            self._collectives[key] = (found, int(float(made.elements.value(self._numbers))))
        return self._collectives[key]


_Nodes = tuple[int, ...]


class _StageTrace:
    """The nodes of one stage; operators that compute nothing are left out.

    A tensor has an operator and, before it, the collectives of its operands; node numbers follow
    STAGE's, where an operator precedes its collectives.
    """

    def __init__(self, sizes: _Sizes, cut: _Cut, stage: int) -> None:
        self._sizes = sizes
        self._cut = cut
        self._tensors = cut.tensors[stage]
        self._columns = NodeAppender(f"stage {stage}")
        self._number: dict[StepTensor, int] = {}
        self._outputs: dict[StepTensor, _Nodes] = {}
        self._count = 0

    def trace(self) -> Trace:
        """Return all nodes as a trace."""
        for tensor in self._tensors:
            self._number[tensor] = self._count
            operands = range(len(tensor.sources))
            self._count += self._is_node(tensor) + len(self._cut.sent.get(tensor, ()))
            self._count += sum(len(self._of(tensor, index)[0]) for index in operands)
        for tensor in self._tensors:
            self._write(tensor)
        schema = Attribute("schema", Wire.STRING, "symbolic_tensor_network")
        return replace(self._columns.trace(), metadata=(schema,))

    def _is_node(self, tensor: StepTensor) -> bool:
        return tensor in self._cut.received or not self._sizes.cost(tensor.form).is_nothing

    def _of(self, tensor: StepTensor, index: int) -> tuple[list[tuple[str, CollectiveType]], int]:
        made = tensor.sources[index].form.result
        return self._sizes.collectives(made, tensor.form.operands[index])

    def _output(self, tensor: StepTensor) -> _Nodes:
        if tensor not in self._outputs:
            own = (self._number[tensor],)
            self._outputs[tensor] = own if self._is_node(tensor) else self._inputs(tensor)
        return self._outputs[tensor]

    def _inputs(self, tensor: StepTensor) -> _Nodes:
        number = self._number[tensor] + self._is_node(tensor)
        found: list[int] = []
        for index, source in enumerate(tensor.sources):
            count = len(self._of(tensor, index)[0])
            number += count
            found += (number - 1,) if count else self._output(source)
        for other in tensor.after:
            found += self._output(other)
        return tuple(dict.fromkeys(found))

    def _write(self, tensor: StepTensor) -> None:
        number, cost = self._number[tensor], self._sizes.cost(tensor.form)
        if tensor in self._cut.received:
            message = self._cut.received[tensor]
            self._message("comm_src", message.tensor.stage, cost.elements, message.tag)
            self._add(number, f"{tensor.name}_Y_RECV", NodeType.COMM_RECV, ())
            return
        if not cost.is_nothing:
            columns = self._columns
            columns.attribute("num_ops", Wire.INT64, cost.operations)
            columns.attribute("tensor_size", Wire.UINT64, cost.elements)
            columns.attribute("op_type", Wire.STRING, columns.text(tensor.form.kind))
            self._add(number, f"{tensor.name}_COMP", NodeType.COMP, self._inputs(tensor))
            number += 1
        for index, word in zip(range(len(tensor.sources)), ("X1COMM", "X2_COMM"), strict=False):
            number = self._collectives(tensor, index, number, f"{tensor.name}_{word}")
        for message in self._cut.sent.get(tensor, ()):
            self._message("comm_dst", message.shadow.stage, cost.elements, message.tag)
            self._add(number, f"{tensor.name}_Y_SEND", NodeType.COMM_SEND, self._output(tensor))
            number += 1

    def _collectives(self, tensor: StepTensor, index: int, number: int, name: str) -> int:
        """Write the collectives of an operand, one after the other; return the next number."""
        kinds, size = self._of(tensor, index)
        before = self._output(tensor.sources[index]) if kinds else ()
        for degree, kind in kinds:
            columns = self._columns
            columns.attribute("is_cpu_op", Wire.BOOL, 0)
            columns.attribute("comm_size", Wire.INT64, size)
            columns.attribute("comm_type", Wire.INT64, kind)
            columns.attribute("pg_name", Wire.STRING, columns.text(degree))
            self._add(number, name, NodeType.COMM_COLL, before)
            before = (number,)
            number += 1
        return number

    def _message(self, end: str, stage: int, size: int, tag: int) -> None:
        self._columns.attribute("comm_size", Wire.INT64, size)
        self._columns.attribute("comm_tag", Wire.INT32, tag)
        self._columns.attribute(end, Wire.INT32, stage)

    def _add(self, number: int, name: str, kind: NodeType, after: _Nodes) -> None:
        self._columns.add(number, name, kind, (after, ()), (0, 0))
