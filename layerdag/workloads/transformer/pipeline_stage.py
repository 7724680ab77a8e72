"""The trace of a pipeline stage: ends, bucketed gradients, transfer of the KV cache."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import final

from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.trace import Trace
from layerdag.workloads.transformer.costs import Costs
from layerdag.workloads.transformer.layers import BlockWriter, LayerWriter, Nodes, TraceBuilder
from layerdag.workloads.transformer.schedule import Task, layers_of_chunks, stage_tasks

_LOSS_BYTES = 4  # the loss is computed in single precision


@final
class EndsWriter(BlockWriter):
    """Writes the passes of the first and the last stage that are not layers."""

    # ---- before the layers ----

    def enter(self, where: str, after: Nodes) -> Nodes:
        """Write the embedding of tokens, or of patches, time step and label."""
        builder, costs = self.builder, self.costs
        if costs.shape.image is None:
            x = builder.compute(f"embedding.{where}", costs.embedding(), after)
            return self.total(f"sum.embedding.{where}", x)
        if costs.condition_bytes:
            after = builder.compute(f"mm.condition.{where}", costs.condition(), after)
        cost = costs.product(costs.products["patches"])
        return builder.compute(f"mm.patches.{where}", cost, after)

    def enter_back(self, where: str, dy: Nodes) -> Nodes:
        """Write the gradients of embeddings; nobody needs those of tokens and pixels."""
        builder, costs = self.builder, self.costs

        def write() -> Nodes:
            if costs.shape.image is None:
                whole = self.gather(f"gather.embedding.{where}", dy)
                return builder.compute(f"embedding.{where}", costs.embedding(), whole)
            cost = costs.product(costs.products["patches"], "weight")
            made = builder.compute(f"mm.patches.{where}.dw", cost, dy)
            if costs.condition_bytes:
                made = builder.compute(f"mm.condition.{where}.dw", costs.condition_back(), made)
            return made

        return self.gradient(write)

    # ---- after the layers ----

    def head(self, where: str, x: Nodes) -> Nodes:
        """Write the last norm, the output layer, and the loss or what inference makes of it."""
        x = self.columns("modulation.head", where, x)
        h = self.norm(f"norm.{where}", x)
        h = self.gather(f"gather.head.{where}", h)
        h = self.linear("logits", where, h)
        return self._loss(where, h) if self.costs.step.training else self._result(where, h)

    def _loss(self, where: str, h: Nodes) -> Nodes:
        costs, builder = self.costs, self.builder
        cost = costs.elementwise(costs.head_tokens, costs.products["logits"].outputs)
        if costs.plan.tensor == 1:
            return builder.compute(f"loss.{where}", cost, h)
        # The softmax over a split vocabulary: its maximum, the target's logit, its sum. A squared
        # error (diffusion) has the sum only.
        for name in ("sum",) if costs.condition_bytes else ("max", "target", "sum"):
            if name == "sum":
                h = builder.compute(f"loss.{where}", cost, h)
            size = costs.head_tokens * _LOSS_BYTES
            kind = CollectiveType.ALL_REDUCE
            h = builder.collective(f"loss_{name}.{where}", kind, "tensor", size, h)
        return h

    def _result(self, where: str, logits: Nodes) -> Nodes:
        """Write the gather of outputs, and the choice of the next token where words are made."""
        costs, builder, tensor = self.costs, self.builder, self.costs.plan.tensor
        width = costs.products["logits"].outputs
        size, kind = costs.head_tokens * width * costs.number, CollectiveType.ALL_GATHER
        logits = self.collective(f"gather_logits.{where}", kind, "tensor", size, logits)
        if costs.shape.image:
            return logits
        cost = costs.elementwise(costs.sequences, width * tensor, 1)
        return builder.compute(f"sample.{where}", cost, logits)

    def head_back(self, where: str, loss: Nodes) -> tuple[Nodes, Nodes]:
        """Write the backward pass; return what makes dx, and gradients of weights."""
        costs = self.costs
        cost = costs.elementwise(costs.head_tokens, costs.products["logits"].outputs)
        dy = self.builder.compute(f"loss.{where}", cost, loss)
        dx, dw = self.linear_back("logits", where, dy, self.stream(".head"))
        cost = costs.elementwise(costs.own_tokens, costs.shape.hidden, 3)
        dx = self.builder.compute(f"norm.{where}", cost, dx)
        dx, scale_dw = self.columns_back("modulation.head", where, dx)
        return dx, (*dw, *scale_dw, *dx)


@dataclass(frozen=True)
class Message:
    """A part of the cache, or of sampled tokens, between two ranks."""

    slot: int  # number of the other rank among those that this rank exchanges the cache with
    size: int  # bytes
    tag: int  # unique between the two ranks


@final
@dataclass(frozen=True)
class Transfer:
    """Messages that the ranks of a class send, or receive, by (layer, micro-batch).

    They are sent when a layer is computed; the first decoded token waits for those received. The
    layer after the last one represents the tokens that prefill samples.
    """

    sent: Mapping[tuple[int, int], tuple[Message, ...]] = field(default_factory=dict)
    received: Mapping[tuple[int, int], tuple[Message, ...]] = field(default_factory=dict)

    def send(self, builder: TraceBuilder, what: str, at: tuple[int, int], after: Nodes) -> None:
        """Write the sends of what a (layer, micro-batch) made: "kv" or "tokens"."""
        for message in self.sent.get(at, ()):
            name = f"send_{what}.{at[0]}.F{at[1]}.to{message.slot}.{message.tag}"
            builder.send(name, message.slot, message.size, message.tag, after)

    def receive(self, builder: TraceBuilder, what: str, at: tuple[int, int]) -> Nodes:
        """Write the receives of what a (layer, micro-batch) needs; return them."""
        made: list[int] = []
        for message in self.received.get(at, ()):
            name = f"recv_{what}.{at[0]}.F{at[1]}.from{message.slot}.{message.tag}"
            made += builder.receive(name, message.slot, message.size, message.tag)
        return tuple(made)


def stage_trace(costs: Costs, stage: int, transfer: Transfer | None = None) -> Trace:
    """Return the trace of all ranks of a pipeline stage; groups and peers as of `TraceBuilder`."""
    return _StageWriter(costs, stage, transfer or Transfer()).written()


@dataclass(frozen=True)
class _Bucket:
    """Gradients that are summed together: of a layer, of the embedding, or of the head."""

    name: str
    role: str  # of the ranks that hold the same weights
    members: int  # how many these are
    parameters: int
    ready: list[int] = field(default_factory=list)  # makes those of the latest micro-batch


class _StageWriter:
    def __init__(self, costs: Costs, stage: int, transfer: Transfer) -> None:
        plan, step = costs.plan, costs.step
        self._costs, self._plan, self._step, self._stage = costs, plan, step, stage
        self._chunks = layers_of_chunks(costs.shape.layers, plan, stage)
        self._layers = [layer for layers in self._chunks for layer in layers]
        self._first, self._last = stage == 0, stage == plan.pipeline - 1
        self._builder = TraceBuilder(step.numbers.dtype, f"{costs.shape.name}, stage {stage}")
        self._ends = EndsWriter(self._builder, costs)
        self._layer_costs = costs
        self._buckets = {bucket.name: bucket for bucket in self._all_buckets()}
        self._transfer = transfer
        self._loss: dict[int, Nodes] = {}
        # By micro-batch: bucket, what writes gradients later, what has made others.
        self._late: dict[int, list[tuple[str, list[Callable[[], Nodes]], Nodes]]] = {}

    def written(self) -> Trace:
        """Return the trace."""
        if not self._step.training:
            sampled: dict[int, Nodes] = {}
            for token in range(self._tokens):
                later = replace(self._step, sequence=self._step.sequence + token)
                self._layer_costs = replace(self._costs, step=later)
                for part in range(self._step.micro_batches):
                    self._builder.begin_task()
                    sampled[part] = self._infer_part(token, part, sampled.get(part, ()))
            return self._builder.trace()
        passes = {
            "forward": self._forward, "backward": self._backward, "weights": self._gradients
        }  # fmt: skip
        for task in stage_tasks(self._plan, self._stage, self._step.micro_batches):
            self._builder.begin_task()
            passes[task.kind](task)
        self._update()
        return self._builder.trace()

    # ---- weights ----

    def _all_buckets(self) -> list[_Bucket]:
        costs, plan = self._costs, self._plan
        buckets = []
        for layer in self._layers:
            here = costs.of_layer(layer)
            buckets.append(_Bucket(f"L{layer}", "data", plan.replicas, here.layer_dense))
            if here.layer_experts:
                buckets.append(_Bucket(
                    f"L{layer}.experts", "expert_data", plan.expert_replicas, here.layer_experts
                ))  # fmt: skip
        if self._first:
            buckets.append(_Bucket("embedding", "data", plan.replicas, costs.entry))
        if self._last:
            size = costs.exit(shared=self._first)
            buckets.append(_Bucket("head", "data", plan.replicas, size))
        return buckets

    def _fetch(self, name: str, where: str, after: Nodes) -> Nodes:
        """Gather the sharded weights of a bucket (ZeRO 3), while what comes before is computed."""
        bucket = self._buckets[name]
        if self._plan.zero < 3 or bucket.members == 1:
            return ()
        return self._gather_weights(bucket, f"weights.{name}.{where}", after)

    def _gather_weights(self, bucket: _Bucket, name: str, after: Nodes) -> Nodes:
        size = _shard(bucket) * self._step.numbers.weights
        return self._builder.collective(name, CollectiveType.ALL_GATHER, bucket.role, size, after)

    def _made(self, name: str, micro_batch: int, nodes: Nodes) -> None:
        if not self._plan.splits_backward:
            self._sum(name, micro_batch, nodes)
            return
        kind = "experts" if name.endswith(".experts") else "dense"
        deferred = self._ends.deferred
        writers = [write for weights, write in deferred if weights == kind]
        deferred[:] = [late for late in deferred if late[0] != kind]
        self._late.setdefault(micro_batch, []).append((name, writers, nodes))

    def _gradients(self, task: Task) -> None:
        for bucket, writers, nodes in self._late.pop(task.micro_batch):
            made = list(nodes)
            for write in writers:
                # None runs before its turn, although its inputs are there.
                self._builder.begin_task()
                made += write()
            self._sum(bucket, task.micro_batch, tuple(made))

    def _sum(self, name: str, micro_batch: int, nodes: Nodes) -> None:
        """Sum gradients where their sum is due.

        Gradients add up over micro-batches and are summed over ranks once a step; ranks that keep
        a shard of the gradients only (ZeRO 2 and 3) sum those of each micro-batch.
        """
        bucket = self._buckets[name]
        bucket.ready[:] = nodes
        last = micro_batch == self._step.micro_batches - 1
        if bucket.members == 1 or not (last or self._plan.zero >= 2):
            return
        kind = CollectiveType.REDUCE_SCATTER if self._plan.zero else CollectiveType.ALL_REDUCE
        size = bucket.parameters * self._step.numbers.gradients
        where = f"gradients.{name}.B{micro_batch}"
        bucket.ready[:] = self._builder.collective(where, kind, bucket.role, size, nodes)

    # ---- training ----

    def _forward(self, task: Task) -> None:
        where = f"F{task.micro_batch}"
        before = x = self._enter(where, task.micro_batch, task.chunk)
        for layer in self._chunks[task.chunk]:
            weights = self._fetch(f"L{layer}", where, before)
            experts = self._fetch_experts(layer, where, before)
            before = x
            x = self._layer(layer).forward(f"{layer}.{where}", (*x, *weights, *experts))
        self._leave(where, task.micro_batch, task.chunk, x)

    def _layer(self, layer: int) -> LayerWriter:
        costs = self._layer_costs.of_layer(layer)
        return LayerWriter(self._builder, costs, self._ends.deferred)

    def _leave(self, where: str, micro_batch: int, chunk: int, x: Nodes) -> None:
        if self._is_last(chunk):
            self._loss[micro_batch] = self._head(where, x)
        else:
            tag = self._tag(self._boundary(chunk) + 1, micro_batch)
            self._builder.send(f"send.{where}", "next", self._costs.passed, tag, x)

    def _boundary(self, chunk: int) -> int:
        return chunk * self._plan.pipeline + self._stage

    def _is_last(self, chunk: int) -> bool:
        return self._last and chunk == len(self._chunks) - 1

    def _fetch_experts(self, layer: int, where: str, after: Nodes) -> Nodes:
        name = f"L{layer}.experts"
        return self._fetch(name, where, after) if name in self._buckets else ()

    def _backward(self, task: Task) -> None:
        micro_batch, boundary = task.micro_batch, self._boundary(task.chunk)
        where = f"B{micro_batch}"
        if self._is_last(task.chunk):
            loss = self._loss.pop(micro_batch)
            loss = (*loss, *self._fetch("head", where, loss))
            dy, made = self._ends.head_back(where, loss)
            self._made("head", micro_batch, made)
        else:
            tag = self._tag(boundary + 1, micro_batch, backward=True)
            dy = self._builder.receive(f"recv.{where}", "next", self._costs.passed, tag)
        before = dy
        for layer in reversed(self._chunks[task.chunk]):
            weights = self._fetch(f"L{layer}", where, before)
            experts = self._fetch_experts(layer, where, before)
            before = dy
            again = self._plan.recomputes(layer)
            needed = (*dy, *weights, *experts)
            passed = self._layer(layer).backward(f"{layer}.{where}", needed, again)
            self._made(f"L{layer}", micro_batch, passed.dense)
            if f"L{layer}.experts" in self._buckets:
                self._made(f"L{layer}.experts", micro_batch, passed.experts)
            dy = passed.dx
        if boundary == 0:
            self._made("embedding", micro_batch, self._ends.enter_back(where, dy))
        else:
            tag = self._tag(boundary, micro_batch, backward=True)
            self._builder.send(f"send.{where}", "previous", self._costs.passed, tag, dy)

    # ---- before and after the layers ----

    def _enter(self, where: str, micro_batch: int, chunk: int = 0) -> Nodes:
        boundary = self._boundary(chunk)
        if boundary == 0:
            return self._ends.enter(where, self._fetch("embedding", where, ()))
        tag = self._tag(boundary, micro_batch)
        return self._builder.receive(f"recv.{where}", "previous", self._costs.passed, tag)

    def _head(self, where: str, x: Nodes) -> Nodes:
        return self._ends.head(where, (*x, *self._fetch("head", where, x)))

    def _tag(self, boundary: int, micro_batch: int, backward: bool = False) -> int:
        parts = self._step.micro_batches * self._step.tokens
        return 1 + 2 * (boundary * parts + micro_batch) + backward

    # ---- the end of a training step ----

    def _update(self) -> None:
        builder, plan = self._builder, self._plan
        builder.begin_task()
        costs, numbers = self._costs, self._step.numbers
        if costs.shape.tied and plan.pipeline > 1 and (self._first or self._last):
            bucket = self._buckets["embedding" if self._first else "head"]
            size = costs.table * numbers.gradients
            if plan.zero:
                size = -(-size // bucket.members)
            bucket.ready[:] = builder.collective(
                "gradients.tied", CollectiveType.ALL_REDUCE, "embedding", size, tuple(bucket.ready)
            )
        ready = tuple(dict.fromkeys(n for b in self._buckets.values() for n in b.ready))
        if plan.tensor > 1 and plan.sequence_parallel:
            count = sum(costs.of_layer(layer).layer_shared for layer in self._layers)
            count += costs.shape.norm_parameters * self._last
            count += costs.entry if self._first and costs.shape.image else 0
            if count:
                size, kind = count * numbers.gradients, CollectiveType.ALL_REDUCE
                summed = builder.collective("gradients.norms", kind, "tensor", size, ready)
                ready = (*ready, *summed)
        held = sum(_shard(b) if plan.zero else b.parameters for b in self._buckets.values())
        done = builder.compute("adam", costs.adam(held), ready)
        for bucket in self._buckets.values():
            if plan.zero in (1, 2) and bucket.members > 1:
                self._gather_weights(bucket, f"weights.{bucket.name}", done)

    # ---- inference ----

    def _infer_part(self, token: int, part: int, before: Nodes) -> Nodes:
        """Write one forward pass; return what makes the next token, where this stage does."""
        number = token * self._step.micro_batches + part
        where = f"F{part}.T{token}" if self._step.phase == "decode" else f"F{part}"
        if self._first and token and not self._last:
            size, tag = self._sampled_bytes, self._tag(0, number)
            before = self._builder.receive(f"recv_token.{where}", "previous", size, tag)
        tokens = (self._costs.shape.layers, part)
        if self._first and not token:
            before = self._transfer.receive(self._builder, "tokens", tokens)
        x = self._ends.enter(where, before) if self._first else self._enter(where, number)
        for layer in self._chunks[0]:  # caches come and go layer by layer
            at = (layer, part)
            cache = () if token else self._transfer.receive(self._builder, "kv", at)
            x = self._layer(layer).forward(f"{layer}.{where}", (*x, *cache))
            self._transfer.send(self._builder, "kv", at, x)
        if not self._last:
            self._leave(where, number, 0, x)
            return ()
        made = self._head(where, x)
        self._transfer.send(self._builder, "tokens", tokens, made)
        if not self._first and token + 1 < self._tokens:
            tag = self._tag(0, number + self._step.micro_batches)
            self._builder.send(f"send_token.{where}", "next", self._sampled_bytes, tag, made)
        return made

    @property
    def _tokens(self) -> int:
        return self._step.tokens if self._step.phase == "decode" else 1

    @property
    def _sampled_bytes(self) -> int:
        return self._costs.sequences * 8  # a token is a 64-bit integer


def _shard(bucket: _Bucket) -> int:
    return -(-bucket.parameters // bucket.members)
