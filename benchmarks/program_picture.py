#!/usr/bin/env python
"""Draw a sampled program: its source, the step that follows from it, and a real run of it.

    python benchmarks/program_picture.py --out docs/images/sampled-program.png

Seed 7 of the checkpoint of programs under "a GPT of eight units", whatever it looks like. The step
is that of the program with each block four times and 1,024 wide, on 64 ranks; the run trains the
program itself on the processor, on one batch of random tokens.
"""

import argparse
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes

import layerdag as ld

_LINES, _COLUMNS = 34, 74
_COLORS = {"matrix product": "#2c6fbb", "communication": "#d1495b", "optimizer": "#e9b44c"}
_OTHER = "#9aa5b1"


def main() -> None:
    """Sample and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("docs/images/sampled-program.png"))
    args = parser.parse_args()
    asked: dict[str, float | str] = {"family": "gpt", "depth": 8}
    program = ld.sample("programs", 1, args.seed, conditions=asked, sizes={"B0": 16})[0].program
    figure = plt.figure(figsize=(13, 5.4), dpi=130)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.15, 1), hspace=0.5, wspace=0.06)
    _source(figure.add_subplot(grid[:, 0]), program)
    _step(figure.add_subplot(grid[0, 1]), program)
    _run(figure.add_subplot(grid[1, 1]), program, args.steps)
    figure.savefig(args.out, bbox_inches="tight")
    print(args.out)


def _source(axes: Axes, program: ld.Program) -> None:
    """Write a program as source, of a long one the beginning and the end."""
    source = program.source().replace(", float32", "")
    source = re.sub(r"parameter\(f?'[^']*', ", "parameter(", source)
    lines = [line.partition("  # block")[0] for line in source.splitlines()]
    lines = [line if len(line) <= _COLUMNS else line[: _COLUMNS - 1] + "…" for line in lines]
    shown = lines
    if len(lines) > _LINES:
        further = f"    … {len(lines) - _LINES + 1} further lines"
        shown = [*lines[: _LINES - 7], further, *lines[-6:]]
    axes.axis("off")
    axes.set_title(
        "1. Sampled: the program of a model that does not exist", loc="left", fontsize=11
    )
    axes.text(0, 1, "\n".join(shown), va="top", family="monospace", fontsize=6.9, linespacing=1.22,
              transform=axes.transAxes)  # fmt: skip


def _step(axes: Axes, program: ld.Program) -> None:
    """Draw when each kind of work of one rank runs."""
    workload = program.deepen(4).resize(w0=1024).step(data=64).workload()
    result = ld.simulate(workload, "small", compute="h100")
    table = workload.traces[0].to_pandas().sort_values("id")
    nodes = slice(*result.program.out_ptr[:2].tolist())
    begin_N, end_N = result.issue_ns[nodes] / 1e6, result.finish_ns[nodes] / 1e6
    kinds = [_kind(*pair) for pair in zip(table["name"], table["type"], strict=True)]
    for row, kind in enumerate((*_COLORS, "")):
        held = [k == kind if kind else k not in _COLORS for k in kinds]
        spans = np.stack([begin_N[held], (end_N - begin_N)[held]], axis=1)
        axes.broken_barh(spans.tolist(), (-row - 0.4, 0.8), color=_COLORS.get(kind, _OTHER))
    axes.set_yticks([0, -1, -2, -3], [*_COLORS, "other work"])
    axes.set_xlabel("ms (simulated)")
    title = f"2. Derived: its step, each block four times, 1,024 wide, {workload.num_ranks} ranks"
    axes.set_title(title, loc="left", fontsize=11)


def _kind(operator: str, node_type: str) -> str:
    """Return the kind of work of a node, "" for all that has no row of its own."""
    if not node_type.startswith("COMP"):
        return "communication"
    word = operator.removeprefix("aten::")
    if word in ("mm", "addmm", "bmm") or "dot_product" in word:
        return "matrix product"
    return "optimizer" if "adam" in word else ""


def _run(axes: Axes, program: ld.Program, steps: int) -> None:
    """Draw the loss of a real run on one batch."""
    torch.manual_seed(0)
    module = program.module()
    inputs = [torch.randint(program.sizes["r0"], i.shape) for i in module.example_inputs()]
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-4)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = module(*inputs)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    axes.plot(losses, color=_COLORS["matrix product"])
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.set_title(
        "3. Run: the same program trains, for real, on one batch", loc="left", fontsize=11
    )


if __name__ == "__main__":
    main()
