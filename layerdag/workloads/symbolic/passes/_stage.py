"""The program of a pipeline stage: all its ranks run it, each in groups of its own."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import final

from layerdag.traces import CollectiveType, Trace
from layerdag.workloads.symbolic.costs import Costs
from layerdag.workloads.symbolic.passes._blocks import BlockWriter
from layerdag.workloads.symbolic.passes._ends import EndsWriter
from layerdag.workloads.symbolic.passes._layers import LayerWriter
from layerdag.workloads.symbolic.passes._tape import Nodes, Tape
from layerdag.workloads.symbolic.passes._transfer import Transfer
from layerdag.workloads.symbolic.plans import Task, layers_of_chunks, stage_tasks


def stage_trace(costs: Costs, stage: int, transfer: Transfer | None = None) -> Trace:
    """Return the program of all ranks of a pipeline stage; groups and peers as `Tape` has them.

    Args:
        costs: Costs of its ranks.
        stage: Its place in the pipeline.
        transfer: Keys and values that its ranks exchange with those of another plan.
    """
    return _StageWriter(costs, stage, transfer or Transfer()).written()


@dataclass(frozen=True)
class _Bucket:
    """Gradients that are summed together: those of a layer, or of what stands before and after.

    Attributes:
        name: For node names.
        role: Ranks that hold the same weights.
        members: How many these are.
        parameters: Parameters on this rank.
        ready: Nodes that make the gradients of the latest micro-batch.
    """

    name: str
    role: str
    members: int
    parameters: int
    ready: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Late:
    """Gradients of the weights of a bucket that a later pass writes.

    Attributes:
        bucket: Its name.
        writers: What writes them.
        made: Nodes that make those that were not put off.
    """

    bucket: str
    writers: list[Callable[[], Nodes]]
    made: Nodes


@final
class _StageWriter:
    """Writes one stage.

    Args:
        costs: Costs of its ranks.
        stage: Its place in the pipeline.
        transfer: Keys and values that it sends or receives.
    """

    def __init__(self, costs: Costs, stage: int, transfer: Transfer) -> None:
        plan, step = costs.plan, costs.step
        self._costs, self._plan, self._step, self._stage = costs, plan, step, stage
        self._chunks = layers_of_chunks(costs.shape.layers, plan, stage)
        self._layers = [layer for layers in self._chunks for layer in layers]
        self._first, self._last = stage == 0, stage == plan.pipeline - 1
        self._tape = Tape(step.numbers.dtype, f"{costs.shape.name}, stage {stage}")
        self._write = BlockWriter(self._tape, costs)
        self._ends_writer = EndsWriter(self._write, costs)
        self._buckets = {bucket.name: bucket for bucket in self._all_buckets()}
        self._transfer = transfer
        self._loss: dict[int, Nodes] = {}
        self._late: dict[int, list[_Late]] = {}

    def written(self) -> Trace:
        """Return the program."""
        if not self._step.training:
            self._infer()
            return self._tape.trace()
        passes = {
            "forward": self._forward, "backward": self._backward, "weights": self._gradients
        }  # fmt: skip
        for task in stage_tasks(self._plan, self._stage, self._step.micro_batches):
            self._tape.begin_task()
            passes[task.kind](task)
        self._update()
        return self._tape.trace()

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
        return self._tape.collective(name, CollectiveType.ALL_GATHER, bucket.role, size, after)

    def _made(self, name: str, micro_batch: int, nodes: Nodes) -> None:
        """Note what makes gradients of weights: now, or in the pass that writes the rest of it."""
        if not self._plan.splits_backward:
            self._sum(name, micro_batch, nodes)
            return
        kind = "experts" if name.endswith(".experts") else "dense"
        writers = [write for weights, write in self._write.put_off if weights == kind]
        self._write.put_off[:] = [late for late in self._write.put_off if late[0] != kind]
        self._late.setdefault(micro_batch, []).append(_Late(name, writers, nodes))

    def _gradients(self, task: Task) -> None:
        """Write the gradients of weights that the backward pass of a micro-batch put off."""
        for late in self._late.pop(task.micro_batch):
            made: list[int] = []
            for write in late.writers:
                self._tape.begin_task()  # none runs before its turn, although its inputs are there
                made += write()
            self._sum(late.bucket, task.micro_batch, (*late.made, *made))

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
        bucket.ready[:] = self._tape.collective(where, kind, bucket.role, size, nodes)

    # ---- training ----

    def _forward(self, task: Task) -> None:
        where = f"F{task.micro_batch}"
        x = self._enter(where, task.micro_batch, task.chunk)
        self._leave(where, task.micro_batch, task.chunk, self._through(where, x, task.chunk))

    def _through(self, where: str, x: Nodes, chunk: int) -> Nodes:
        before = x
        for layer in self._chunks[chunk]:
            weights = self._fetch(f"L{layer}", where, before)
            experts = self._fetch_experts(layer, where, before)
            before = x
            x = self._layer(layer).forward(f"{layer}.{where}", (*x, *weights, *experts))
        return x

    def _layer(self, layer: int) -> LayerWriter:
        """Return the writer of a layer."""
        return LayerWriter(replace(self._write, costs=self._write.costs.of_layer(layer)))

    def _leave(self, where: str, micro_batch: int, chunk: int, x: Nodes) -> None:
        if self._ends(chunk):
            self._loss[micro_batch] = self._head(where, x)
        else:
            tag = self._tag(self._boundary(chunk) + 1, micro_batch)
            self._tape.send(f"send.{where}", "next", self._costs.passed, tag, x)

    def _boundary(self, chunk: int) -> int:
        """Return the place of a virtual stage among all of the job."""
        return chunk * self._plan.pipeline + self._stage

    def _begins(self, chunk: int) -> bool:
        return self._first and chunk == 0

    def _ends(self, chunk: int) -> bool:
        return self._last and chunk == len(self._chunks) - 1

    def _fetch_experts(self, layer: int, where: str, after: Nodes) -> Nodes:
        name = f"L{layer}.experts"
        return self._fetch(name, where, after) if name in self._buckets else ()

    def _backward(self, task: Task) -> None:
        where, micro_batch, boundary = (
            f"B{task.micro_batch}",
            task.micro_batch,
            self._boundary(task.chunk),
        )
        if self._ends(task.chunk):
            loss = self._loss.pop(micro_batch)
            loss = (*loss, *self._fetch("head", where, loss))
            dy, made = self._ends_writer.head_back(where, loss)
            self._made("head", micro_batch, made)
        else:
            tag = self._tag(boundary + 1, micro_batch, backward=True)
            dy = self._tape.receive(f"recv.{where}", "next", self._costs.passed, tag)
        before = dy
        for layer in reversed(self._chunks[task.chunk]):
            weights = self._fetch(f"L{layer}", where, before)
            experts = self._fetch_experts(layer, where, before)
            before = dy
            passed = self._layer(layer).backward(f"{layer}.{where}", (*dy, *weights, *experts))
            self._made(f"L{layer}", micro_batch, passed.dense)
            if f"L{layer}.experts" in self._buckets:
                self._made(f"L{layer}.experts", micro_batch, passed.experts)
            dy = passed.dx
        if self._begins(task.chunk):
            self._made("embedding", micro_batch, self._ends_writer.enter_back(where, dy))
        else:
            tag = self._tag(boundary, micro_batch, backward=True)
            self._tape.send(f"send.{where}", "previous", self._costs.passed, tag, dy)

    # ---- what stands before and after the layers ----

    def _enter(self, where: str, micro_batch: int, chunk: int = 0) -> Nodes:
        """Return what makes the input of the first layer of a virtual stage."""
        if not self._begins(chunk):
            tag = self._tag(self._boundary(chunk), micro_batch)
            return self._tape.receive(f"recv.{where}", "previous", self._costs.passed, tag)
        return self._ends_writer.enter(where, self._fetch("embedding", where, ()))

    def _head(self, where: str, x: Nodes) -> Nodes:
        return self._ends_writer.head(where, (*x, *self._fetch("head", where, x)))

    def _tag(self, boundary: int, micro_batch: int, backward: bool = False) -> int:
        """Return the tag of a message across a boundary between stages, unique in the job."""
        parts = self._step.micro_batches * self._step.tokens
        return 1 + 2 * (boundary * parts + micro_batch) + backward

    # ---- the end of a training step ----

    def _update(self) -> None:
        """Write the sums that are left, the optimizer, and the gathers of updated weights."""
        tape, plan = self._tape, self._plan
        tape.begin_task()
        costs, numbers = self._costs, self._step.numbers
        if costs.shape.tied and plan.pipeline > 1 and (self._first or self._last):
            bucket = self._buckets["embedding" if self._first else "head"]
            size = costs.table * numbers.gradients
            if plan.zero:
                size = -(-size // bucket.members)
            bucket.ready[:] = tape.collective(
                "gradients.tied", CollectiveType.ALL_REDUCE, "embedding", size, tuple(bucket.ready)
            )
        ready = tuple(dict.fromkeys(n for b in self._buckets.values() for n in b.ready))
        if plan.tensor > 1 and plan.sequence_parallel:
            count = sum(costs.of_layer(layer).layer_shared for layer in self._layers)
            count += costs.shape.norm_parameters * self._last
            count += costs.entry if self._first and costs.shape.image else 0
            ready = (*ready, *self._sum_shared(count * numbers.gradients, ready))
        held = sum(_shard(b) if plan.zero else b.parameters for b in self._buckets.values())
        done = tape.compute("adam", costs.adam(held), ready)
        for bucket in self._buckets.values():
            if plan.zero in (1, 2) and bucket.members > 1:
                self._gather_weights(bucket, f"weights.{bucket.name}", done)

    def _sum_shared(self, size: int, ready: Nodes) -> Nodes:
        """Write the sum of gradients of what each tensor rank applied to tokens of its own."""
        if not size:
            return ()
        kind = CollectiveType.ALL_REDUCE
        return self._tape.collective("gradients.norms", kind, "tensor", size, ready)

    # ---- inference ----

    def _infer(self) -> None:
        """Write prefill, or one token of decode after the other."""
        tokens = self._step.tokens if self._step.phase == "decode" else 1
        sampled: dict[int, Nodes] = {}
        for token in range(tokens):
            self._write = BlockWriter(self._tape, _later(self._costs, token))
            for part in range(self._step.micro_batches):
                self._tape.begin_task()
                sampled[part] = self._infer_part(token, part, sampled.get(part, ()))

    def _infer_part(self, token: int, part: int, before: Nodes) -> Nodes:
        """Write one forward pass; return what makes the next token, where this stage does."""
        number = token * self._step.micro_batches + part
        where = f"F{part}.T{token}" if self._step.phase == "decode" else f"F{part}"
        if self._first and token and not self._last:
            size, tag = self._sampled_bytes, self._tag(0, number)
            before = self._tape.receive(f"recv_token.{where}", "previous", size, tag)
        if self._first and not token:
            before = self._transfer.receive(self._tape, "tokens", (self._costs.shape.layers, part))
        x = self._enter_inference(where, number, before)
        x = self._infer_through(where, (token, part), x)
        if not self._last:
            self._leave(where, number, 0, x)
            return ()
        made = self._head(where, x)
        self._transfer.send(self._tape, "tokens", (self._costs.shape.layers, part), made)
        if not self._first and token + 1 < self._step.tokens and self._step.phase == "decode":
            tag = self._tag(0, number + self._step.micro_batches)
            self._tape.send(f"send_token.{where}", "next", self._sampled_bytes, tag, made)
        return made

    def _infer_through(self, where: str, pass_of: tuple[int, int], x: Nodes) -> Nodes:
        """Write the layers for (token, micro-batch); caches come and go layer by layer."""
        token, part = pass_of
        for layer in self._chunks[0]:
            cache = () if token else self._transfer.receive(self._tape, "kv", (layer, part))
            x = self._layer(layer).forward(f"{layer}.{where}", (*x, *cache))
            self._transfer.send(self._tape, "kv", (layer, part), x)
        return x

    def _enter_inference(self, where: str, number: int, before: Nodes) -> Nodes:
        if not self._first:
            return self._enter(where, number)
        return self._ends_writer.enter(where, before)

    @property
    def _sampled_bytes(self) -> int:
        return self._costs.sequences * 8  # a token is a 64-bit integer


def _later(costs: Costs, token: int) -> Costs:
    """Return the costs of a token of decode: the cache has grown by those before it."""
    step = replace(costs.step, sequence=costs.step.sequence + token)
    return replace(costs, step=step)


def _shard(bucket: _Bucket) -> int:
    """Return the parameters of a bucket that one of its ranks keeps."""
    return -(-bucket.parameters // bucket.members)
