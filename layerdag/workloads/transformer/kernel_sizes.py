"""Sizes that the kernels of a transformer step are called with, as attributes of its nodes.

The names are those of imported traces (``layerdag.traces.pytorch.kernel_shapes``): ``m, n, k,
batch`` of products, ``batch, heads, kv_heads, sequence, kv_sequence, head_dim`` of attention.
Products of experts state ``experts``, those of all ranks. Steps of inference add what kernels of
serving engines are measured by: attention the ``past`` tokens of its cache and its ``window``,
products of experts ``experts_per_token, hidden`` and ``ffn``, the inner width of an expert here.
"""

from collections.abc import Mapping

from layerdag.workloads.transformer.costs import Costs, Linear

NO_SIZES: Mapping[str, int] = {}
"""Of operators that are no products."""


def product_sizes(costs: Costs, layer: Linear, tokens: int) -> dict[str, int]:
    """Return those of the forward pass of a linear layer; experts share the tokens evenly."""
    sizes = _product(costs, layer, (-(-tokens // layer.copies), layer.outputs, layer.inputs))
    if "experts" in sizes and not costs.step.training:
        shape = costs.shape
        sizes |= {"experts_per_token": shape.experts_per_token, "hidden": shape.hidden}
        sizes["ffn"] = costs.down.inputs
    return sizes


def input_gradient_sizes(costs: Costs, layer: Linear, tokens: int) -> dict[str, int]:
    """Return those of the gradient of a linear layer's input."""
    return _product(costs, layer, (-(-tokens // layer.copies), layer.inputs, layer.outputs))


def weight_gradient_sizes(costs: Costs, layer: Linear, tokens: int) -> dict[str, int]:
    """Return those of the gradient of a linear layer's weight."""
    return _product(costs, layer, (layer.inputs, layer.outputs, -(-tokens // layer.copies)))


def attention_sizes(costs: Costs) -> dict[str, int]:
    """Return those of the attention core of a rank."""
    shape, tensor, decode = costs.shape, costs.plan.tensor, costs.step.phase == "decode"
    sizes = {
        "batch": costs.sequences,
        "heads": shape.heads // tensor,
        "kv_heads": max(shape.key_heads // tensor, 1),
        "sequence": costs.tokens // costs.sequences,
        "kv_sequence": costs.step.sequence + decode,
        "head_dim": shape.head_width,
    }
    if costs.step.phase in ("prefill", "decode") and not shape.latent:
        sizes["past"] = costs.step.sequence if decode else 0
        sizes["window"] = shape.window
    return sizes


def _product(costs: Costs, layer: Linear, mnk: tuple[int, int, int]) -> dict[str, int]:
    sizes = {**dict(zip("mnk", mnk, strict=True)), "batch": layer.copies}
    of_experts = costs.shape.experts and (layer is costs.up or layer is costs.down)
    return sizes | ({"experts": costs.shape.experts} if of_experts else {})
