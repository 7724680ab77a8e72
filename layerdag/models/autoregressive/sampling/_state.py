"""The discrete state of sampling: structural features, out-degrees, uses and capacities.

Shape letters: B graphs (the active ones), F feature columns (codes of all attributes), K codes, R
rows, T tokens (the newest of each graph), X selected
graphs.
"""

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerdag.models import PossibleCodes
from layerdag.models.autoregressive import NEVER, AllowedCodes, StructuralFeatures
from layerdag.models.autoregressive.sampling._cache import PositionBuffer


@dataclass(frozen=True, eq=False)
class CodeMasks:
    """The codes that nodes can have, by training and by the meaning of the codes.

    Attributes:
        allowed: The attributes that go together in training graphs.
        pairs_FF: Codes that one node can have together.
        graph_BF: Codes that the nodes of each sample can have; the last row is for padding.
    """

    allowed: AllowedCodes
    pairs_FF: Bool[Tensor, "F F"]
    graph_BF: Bool[Tensor, "B F"]

    @classmethod
    def of(cls, allowed: AllowedCodes, possible: PossibleCodes | None, samples: int) -> "CodeMasks":
        """Return the masks of a request for so many samples."""
        observed_FF = allowed.allowed_FF
        if possible is None:
            graph_BF = observed_FF.new_ones((samples + 1, observed_FF.shape[0]))
            return cls(allowed, observed_FF, graph_BF)
        padded_BF = torch.nn.functional.pad(possible.graph_BF, (0, 0, 0, 1), value=True)
        pairs_FF = observed_FF & possible.pairs_FF.to(observed_FF.device)
        return cls(allowed, pairs_FF, padded_BF.to(observed_FF.device))

    def given(self, attribute: int, code_B: Int[Tensor, " B"]) -> Bool[Tensor, "B F"]:
        """Return what nodes with these codes of an attribute may have in all attributes."""
        return self.pairs_FF[self.allowed.starts[attribute] + code_B]

    def limit(
        self, logits_BK: Float[Tensor, "B K"], allowed_BF: Bool[Tensor, "B F"], attribute: int
    ) -> Float[Tensor, "B K"]:
        """Rule out codes of an attribute; see ``AllowedCodes.limit``."""
        return self.allowed.limit(logits_BK, allowed_BF, attribute)


@dataclass(eq=False)
class SamplerState:
    """One row per active graph, about its newest token.

    Attributes:
        sample_B: Index of the sample in the request.
        structure: Structural features of the newest token.
        layer_start_B: First position of the newest token's layer.
        before_start_B: First position of the layer before.
        sibling_B: First parent of the newest node, ``NEVER`` without one.
        out_degree: Predicted number of children of each position.
        used: Number of children so far of each position.
        capacity: Remaining capacity for children of each position.
        last: Position of the last child, ``NEVER`` without one.
        layer: Layer of each position.
    """

    sample_B: Int[Tensor, " B"]
    structure: StructuralFeatures
    layer_start_B: Int[Tensor, " B"]
    before_start_B: Int[Tensor, " B"]
    sibling_B: Int[Tensor, " B"]
    out_degree: PositionBuffer
    used: PositionBuffer
    capacity: PositionBuffer
    last: PositionBuffer
    layer: PositionBuffer

    @classmethod
    def start(cls, rows: int, device: torch.device) -> "SamplerState":
        """Return the state after the start token."""
        zero_B = torch.zeros(rows, dtype=torch.int64, device=device)
        structure = StructuralFeatures(
            **{field.name: zero_B for field in fields(StructuralFeatures)}
        )
        return cls(
            sample_B=torch.arange(rows, device=device),
            structure=replace(structure, size_T=zero_B + 1),
            layer_start_B=zero_B + 1,
            before_start_B=zero_B + 1,
            sibling_B=zero_B + NEVER,
            out_degree=PositionBuffer(rows, (), torch.int64, device),
            used=PositionBuffer(rows, (), torch.int64, device),
            capacity=PositionBuffer(rows, (), torch.int64, device),
            last=PositionBuffer(rows, (), torch.int64, device),
            layer=PositionBuffer(rows, (), torch.int64, device),
        )

    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``."""
        for name in ("sample_B", "layer_start_B", "before_start_B", "sibling_B"):
            setattr(self, name, getattr(self, name)[row_R])
        kept = {f.name: getattr(self.structure, f.name)[row_R] for f in fields(StructuralFeatures)}
        self.structure = StructuralFeatures(**kept)
        for part in (self.out_degree, self.used, self.capacity, self.last, self.layer):
            part.select(row_R)

    def start_node(self, position: int, size_B: Int[Tensor, " B"]) -> None:
        """Start the next node; where a layer is complete, a new layer of ``size_B`` nodes."""
        old, new_layer_B = self.structure, self.structure.left_T == 0
        inner_B = new_layer_B & (old.position_T > 0)
        self.before_start_B = torch.where(inner_B, self.layer_start_B, self.before_start_B)
        self.layer_start_B = torch.where(new_layer_B, position, self.layer_start_B)
        self.sibling_B = self.sibling_B.masked_fill(new_layer_B, NEVER)
        size_B = torch.where(new_layer_B, size_B, old.size_T)
        index_B = (old.index_T + 1).masked_fill(new_layer_B, 0)
        self.structure = StructuralFeatures(
            degree_T=torch.zeros_like(index_B),
            out_degree_T=torch.zeros_like(index_B),
            size_T=size_B,
            index_T=index_B,
            left_T=size_B - index_B - 1,
            open_T=old.open_T,
            open_layer_T=old.open_layer_T.masked_fill(new_layer_B, 0),
            open_before_T=torch.where(new_layer_B, old.open_layer_T, old.open_before_T),
            position_T=torch.full_like(index_B, position),
            layer_T=old.layer_T + inner_B,
        )
        for part in (self.out_degree, self.used, self.capacity):
            part.write(position, 0)
        self.last.write(position, NEVER)
        self.layer.write(position, self.structure.layer_T)

    def connect(self, row_X: Int[Tensor, " X"], parent_X: Int[Tensor, " X"]) -> None:
        """Add one parent to the newest node of each of the rows ``row_X``."""
        structure = self.structure
        self.used.data[row_X, parent_X] += 1
        self.capacity.data[row_X, parent_X] -= 1
        self.last.data[row_X, parent_X] = structure.position_T[row_X]
        near_X = self.layer.data[row_X, parent_X] == structure.layer_T[row_X] - 1
        one_X = torch.ones_like(row_X)
        self.structure = replace(
            structure,
            degree_T=structure.degree_T.index_add(0, row_X, one_X),
            open_T=structure.open_T.index_add(0, row_X, -one_X),
            open_before_T=structure.open_before_T.index_add(0, row_X, -near_X.long()),
        )

    def set_out_degree(
        self, position: int, out_degree_B: Int[Tensor, " B"], capacity_B: Int[Tensor, " B"]
    ) -> None:
        """Set the predicted out-degree and the capacity for children of the newest node."""
        self.out_degree.write(position, out_degree_B)
        self.capacity.write(position, capacity_B)
        self.structure = replace(
            self.structure,
            out_degree_T=out_degree_B,
            open_T=self.structure.open_T + out_degree_B,
            open_layer_T=self.structure.open_layer_T + out_degree_B,
        )
