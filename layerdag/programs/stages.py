"""Cutting a program into pipeline stages, each a program of its own.

A stage begins where a unit begins if it can. What a later stage needs is sent from stage to stage;
what follows from inputs of the model alone, such as a mask or a rotation, is computed where it is
needed, and inputs such as targets are read there, as pipelines of real jobs do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from layerdag.capturing.fake_tensors import RememberingFakeMode
from layerdag.capturing.parallel import TensorPlan
from layerdag.errors import UsageError
from layerdag.plan import StepSettings
from layerdag.programs.execution import quiet, run, tensors_of
from layerdag.programs.module import ProgramModule
from layerdag.programs.nodes import EDGE, ForwardGraph, Leaf, Node
from layerdag.programs.operators import GETITEM, LEAVES, in_place, operator
from layerdag.programs.pipeline import StageModule, TensorForm
from layerdag.programs.recording import dtype_name
from layerdag.programs.tensor_pairs import split_pairs
from layerdag.runtime.settings import did_you_mean


def stage_modules(program: ForwardGraph, settings: StepSettings) -> list[StageModule]:
    """Return the stages of a program as modules.

    Raises:
        NodeError: If a node cannot run.
        UsageError: If the program cannot be cut into so many stages, or not at the modules named.
    """
    cutting = _Cutting(program, settings)
    bounds = cutting.bounds()
    stages = [cutting.stage(at, bounds) for at in range(len(bounds) - 1)]
    bf16 = settings.step.precision == "bf16"
    holders: dict[str, list[int]] = {}
    for at, stage in enumerate(stages):
        for name in stage.shared:
            holders.setdefault(name, []).append(at)
    shared: Sequence[TensorPlan | None] = [None] * len(stages)
    if settings.plan.tensor > 1:
        shared = split_pairs([stage.program for stage in stages], settings.plan.tensor, bf16)
    fake = RememberingFakeMode()  # a stage of any size takes no memory
    modules = []
    with fake, torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        for stage, plan in zip(stages, shared, strict=True):
            body = ProgramModule(stage.program, content=False)
            path_of = {path.rsplit(".", 1)[-1]: path for path, _ in body.named_parameters()}
            held = tuple(
                (path_of[f"node{at}_0"], tuple(holders[name]))
                for name, at in stage.shared.items()
                if len(holders[name]) > 1
            )
            tensors = (stage.received, stage.given, stage.inputs)
            modules.append(StageModule(body, *tensors, held, plan))
    return modules


class _Stage(NamedTuple):
    """A stage as a program; it receives and gives tensors, and reads some of the model's inputs."""

    program: ForwardGraph
    received: tuple[TensorForm, ...]
    given: tuple[TensorForm, ...]
    inputs: tuple[TensorForm, ...]
    shared: Mapping[str, int]  # nodes of trained parameters that several nodes may read, by name


class _Cutting:
    def __init__(self, program: ForwardGraph, settings: StepSettings) -> None:
        self._program, self._settings = program, settings
        bf16 = settings.step.precision == "bf16"
        self._results: list[Any] = []
        self._cost_N = np.zeros(len(program.nodes))
        self._written: dict[int, int] = {}
        autocast = torch.autocast("cpu", torch.bfloat16, enabled=bf16)
        with quiet(), RememberingFakeMode(), autocast:
            self._run()
        self._last_use = program.last_uses()
        self._free_N = self._given_by_inputs()
        self._crossing: list[list[int]] = [[]]  # results that are needed behind each cut
        for cut in range(1, len(program.nodes) + 1):
            own = program.nodes[cut - 1].operator not in LEAVES and not self._free_N[cut - 1]
            alive = [*self._crossing[-1], cut - 1] if own else self._crossing[-1]
            self._crossing.append([at for at in alive if self._last_use[at] >= cut])

    def _run(self) -> None:
        before = 0
        with FlopCounterMode(display=False) as counter:
            for at, result in enumerate(run(self._program)):
                self._results.append(result)
                total = int(counter.get_total_flops())
                tensors = tensors_of(result)
                self._cost_N[at] = total - before + sum(tensor.numel() for tensor in tensors)
                before = total
                if in_place(self._program.nodes[at].operator):
                    self._written[_memory(tensors[0])] = at
        self._cost_N[[node.operator in LEAVES for node in self._nodes]] = 0

    def _given_by_inputs(self) -> list[bool]:
        found: list[bool] = []
        for at, node in enumerate(self._program.nodes):
            if node.operator in LEAVES:
                found.append(node.operator != "parameter")
                continue
            random = node.operator != GETITEM and (
                torch.Tag.nondeterministic_seeded in operator(node.operator).tags
            )
            tensors = tensors_of(self._results[at])
            found.append(
                not (random or in_place(node.operator) or "norm" in node.operator)
                and all(leaf.kind != "parameter" for leaf in node.leaves)
                and all(found[i] for i in node.inputs)
                and not any(tensor.requires_grad for tensor in tensors)
                and not any(_memory(tensor) in self._written for tensor in tensors)
            )
        return found

    # ---- where to cut ----

    def bounds(self) -> list[int]:
        """Return the first node of each stage, and the end."""
        plan, nodes = self._settings.plan, self._program.nodes
        if not all(isinstance(self._results[at], Tensor) for at in self._program.outputs):
            raise UsageError(
                f"{self._program.name}: it returns a list of tensors, which no stage can; let the "
                "program return its loss."
            )
        if plan.cuts:
            cuts = [self._named(name) for name in plan.cuts]
            if sorted(set(cuts)) != cuts:
                raise UsageError(
                    f"{self._program.name}: the cuts {', '.join(plan.cuts)} are not in the order "
                    "in which the modules run; name each once, in order."
                )
            for name, (first, end) in zip(plan.cuts, pairwise([*cuts, len(nodes)]), strict=True):
                if not any(map(self._trains, nodes[first:end])):
                    raise UsageError(
                        f"{self._program.name}: the stage that begins with '{name}' has nothing to "
                        "train; let it begin earlier, or the next one later."
                    )
            return [0, *cuts, len(nodes)]
        legal = [at for at in range(1, len(nodes)) if self._fault(at) is None]
        for places in self._choices(legal):
            found = self._balanced(places, plan.pipeline)
            if found:
                return [0, *found, len(nodes)]
        raise UsageError(
            f"{self._program.name}: at the {len(legal)} places where it can be cut, it makes fewer "
            f"than {plan.pipeline} stages with parameters of their own; give fewer."
        )

    def _choices(self, legal: Sequence[int]) -> Iterator[list[int]]:
        begins: dict[str, int] = {}
        for at, node in enumerate(self._nodes):
            unit = self._program.unit_around(node.module)
            if unit and node.operator not in LEAVES:
                begins.setdefault(unit, at)
        able = set(legal)
        yield [at for at in begins.values() if at in able]
        yield [at for at in legal if len(self._crossing[at]) == 1]
        yield list(legal)

    def _balanced(self, places: Sequence[int], stages: int) -> list[int]:
        """Return the places nearest to equal shares of the operations, none if there are too few.

        Every stage gets parameters of its own.
        """
        done_N = np.concatenate([[0.0], np.cumsum(self._cost_N)])
        trained_N = np.concatenate([[0], np.cumsum([self._trains(n) for n in self._nodes])])
        levels = sorted({int(trained_N[at]) for at in places} - {int(trained_N[-1])})
        found = [0]
        for number in range(1, stages):
            target, before = done_N[-1] * number / stages, int(trained_N[found[-1]])
            most = len(levels) - (stages - number - 1)  # so many further cuts must fit behind
            highest = levels[most - 1] if most > 0 else before
            able = [at for at in places if at > found[-1] and before < trained_N[at] <= highest]
            if not able:
                return []
            found.append(min(able, key=lambda at: abs(done_N[at] - target)))
        return found[1:]

    @property
    def _nodes(self) -> tuple[Node, ...]:
        return self._program.nodes

    def _trains(self, node: Node) -> bool:
        """Return whether a node counts as one with parameters; without training any call does."""
        if not self._settings.step.training:
            return node.operator not in LEAVES
        read = (leaf for i in node.inputs for leaf in self._nodes[i].leaves
                if self._nodes[i].operator == "parameter")  # fmt: skip
        leaves = (*node.leaves, *read)
        trained = any(leaf.kind == "parameter" and leaf.trained for leaf in leaves)
        return trained and node.operator not in LEAVES

    def _named(self, name: str) -> int:
        """Return the first node of a module, refused where no stage can begin."""
        known: dict[str, int] = {}
        for at, node in enumerate(self._nodes):
            parts = node.module.split(".") if node.operator not in LEAVES and node.module else []
            for depth in range(1, len(parts) + 1):
                known.setdefault(".".join(parts[:depth]), at)
        if name not in known:
            raise UsageError(
                f"{self._program.name}: no module '{name}' runs.{did_you_mean(name, list(known))} "
                f"A stage begins with one, such as {', '.join(list(known)[:4]) or '-'}."
            )
        fault = self._fault(known[name])
        if fault:
            raise UsageError(f"{self._program.name}: no stage can begin with '{name}': {fault}.")
        return known[name]

    def _fault(self, cut: int) -> str | None:
        """Return why no stage can begin at a place, None if one can."""
        if self._nodes[cut].operator in LEAVES:
            return "it is no call"
        passed = self._crossing[cut]
        if not passed:
            return "nothing is passed on there"
        for at in passed:
            result = self._results[at]
            if not isinstance(result, Tensor):
                return f"{self._nodes[at].operator} before it returns a list of tensors"
            if result.requires_grad and self._written.get(_memory(result), -1) >= cut:
                return f"the result of {self._nodes[at].operator} is overwritten after it"
        if self._settings.step.training and not any(
            self._results[at].requires_grad for at in passed
        ):
            return "nothing that is trained comes before it"
        return None

    # ---- stages ----

    def stage(self, number: int, bounds: Sequence[int]) -> _Stage:
        """Return a stage; ``bounds`` are the first node of each, and the end."""
        first, end = bounds[number], bounds[number + 1]
        last = end == len(self._nodes)
        received = self._crossing[first] if number else []
        given = list(self._program.outputs) if last else self._crossing[end]
        kept = self._kept(first, end, received, given)
        body = [at for at in kept if at not in set(received)]
        place = {at: new for new, at in enumerate([*received, *body])}
        results = [self._results[at] for at in received]
        leaves = [Leaf("input", tuple(r.shape), dtype_name(r.dtype)) for r in results]
        nodes = [Node("input", (leaf,)) for leaf in leaves]
        for node in (self._nodes[at] for at in body):
            nodes.append(replace(node, inputs=tuple(place[i] for i in node.inputs)))
        outputs = []
        for at in given:
            outputs.append(place[at])
            if not last and not self._results[at].is_contiguous():
                outputs[-1] = len(nodes)  # only contiguous tensors can be sent
                nodes.append(Node("aten.contiguous.default", (EDGE,), inputs=(place[at],)))
        read = [at for at in body if self._nodes[at].operator == "input"]
        program = self._program
        unused = (each for each in program.unused if self._nearest(each[0], bounds) == number)
        held = ForwardGraph(
            name=f"{program.name}, stage {number}",
            nodes=tuple(nodes),
            sizes=program.sizes,
            outputs=tuple(outputs),
            order=program.order,
            unused=tuple(unused),
            units=program.units,
        )
        parameters = [at for at in body if self._nodes[at].operator == "parameter"]
        return _Stage(
            held,
            received=tuple(self._form(at) for at in received),
            given=tuple(self._form(at, sent=not last) for at in given),
            inputs=tuple(self._form(at) for at in read),
            shared={
                next(iter(self._nodes[at].names), f"node {at}"): place[at]
                for at in parameters
                if any(leaf.trained for leaf in self._nodes[at].leaves)
            },
        )

    def _kept(
        self, first: int, end: int, received: Sequence[int], given: Sequence[int]
    ) -> list[int]:
        own = {
            at
            for at in range(first, end)
            if self._nodes[at].operator not in LEAVES
            and not (self._free_N[at] and self._last_use[at] > at)
        }
        kept: set[int] = set()
        todo = [*own, *given]
        while todo:
            at = todo.pop()
            if at not in kept:
                kept.add(at)
                todo += [] if at in set(received) else self._nodes[at].inputs
        return sorted(kept)

    def _nearest(self, name: str, bounds: Sequence[int]) -> int:
        best = (-1, 0)
        for number, (first, end) in enumerate(pairwise(bounds)):
            for node in self._nodes[first:end]:
                parts = zip(name.split("."), node.module.split("."), strict=False)
                common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], parts))
                best = max(best, (common, -number))
        return -best[1]

    def _form(self, at: int, sent: bool = False) -> TensorForm:
        result = self._results[at]
        strides = torch.empty(result.shape, device="meta").stride() if sent else result.stride()
        leaves = self._nodes[at].leaves if self._nodes[at].operator == "input" else ()
        sizes = [size for leaf in leaves for size in leaf.shape]
        batch = next((dim for dim, size in enumerate(sizes) if str(size).startswith("B")), None)
        return TensorForm(
            tuple(result.shape), tuple(strides), result.dtype, bool(result.requires_grad), batch
        )


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
