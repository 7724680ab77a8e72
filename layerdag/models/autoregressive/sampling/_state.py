"""How far each sampled graph has come: counts, plans and uses; the discrete half of the state."""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from layerdag.models.autoregressive import NEVER, Place
from layerdag.models.autoregressive.sampling._cache import Columns


@dataclass(eq=False)
class Progress:
    """One row per graph that is still growing, about its newest token.

    Attributes:
        sample_B: Index of the sample in the request.
        place: Counts of the newest token.
        layer_start_B: First position of the newest token's layer.
        before_start_B: First position of the layer before.
        sibling_B: First parent of the newest node, ``NEVER`` without one.
        planned: Planned children of each position.
        used: Children so far of each position.
        room: Children that each position may still get, by its plan and the limits of its kind.
        last: Position of the last child, ``NEVER`` without one.
        layer: Layer of each position.
    """

    sample_B: Tensor
    place: Place
    layer_start_B: Tensor
    before_start_B: Tensor
    sibling_B: Tensor
    planned: Columns
    used: Columns
    room: Columns
    last: Columns
    layer: Columns

    @classmethod
    def start(cls, rows: int, device: torch.device) -> "Progress":
        """Return the state after the start token."""
        zero_B = torch.zeros(rows, dtype=torch.int64, device=device)
        place = Place(**{field.name: zero_B for field in fields(Place)})
        return cls(
            sample_B=torch.arange(rows, device=device),
            place=replace(place, size_T=zero_B + 1),
            layer_start_B=zero_B + 1,
            before_start_B=zero_B + 1,
            sibling_B=zero_B + NEVER,
            planned=Columns(rows, (), torch.int64, device),
            used=Columns(rows, (), torch.int64, device),
            room=Columns(rows, (), torch.int64, device),
            last=Columns(rows, (), torch.int64, device),
            layer=Columns(rows, (), torch.int64, device),
        )

    def select(self, row_R: Tensor) -> None:
        """Keep the rows ``row_R``."""
        for name in ("sample_B", "layer_start_B", "before_start_B", "sibling_B"):
            setattr(self, name, getattr(self, name)[row_R])
        kept = {f.name: getattr(self.place, f.name)[row_R] for f in fields(Place)}
        self.place = Place(**kept)
        for part in (self.planned, self.used, self.room, self.last, self.layer):
            part.select(row_R)

    def open_slots(self, position: int, size_B: Tensor) -> None:
        """Move on to the next node; where a layer is full, to a new layer of ``size_B`` nodes."""
        old, opens_B = self.place, self.place.left_T == 0
        inner_B = opens_B & (old.position_T > 0)
        self.before_start_B = torch.where(inner_B, self.layer_start_B, self.before_start_B)
        self.layer_start_B = torch.where(opens_B, position, self.layer_start_B)
        self.sibling_B = self.sibling_B.masked_fill(opens_B, NEVER)
        size_B = torch.where(opens_B, size_B, old.size_T)
        index_B = (old.index_T + 1).masked_fill(opens_B, 0)
        self.place = Place(
            degree_T=torch.zeros_like(index_B),
            planned_T=torch.zeros_like(index_B),
            size_T=size_B,
            index_T=index_B,
            left_T=size_B - index_B - 1,
            open_T=old.open_T,
            open_layer_T=old.open_layer_T.masked_fill(opens_B, 0),
            open_before_T=torch.where(opens_B, old.open_layer_T, old.open_before_T),
            position_T=torch.full_like(index_B, position),
            layer_T=old.layer_T + inner_B,
        )
        for part in (self.planned, self.used, self.room):
            part.write(position, 0)
        self.last.write(position, NEVER)
        self.layer.write(position, self.place.layer_T)

    def connect(self, row_A: Tensor, parent_A: Tensor) -> None:
        """Note that the newest node of the rows ``row_A`` has one more parent each."""
        place = self.place
        self.used.data[row_A, parent_A] += 1
        self.room.data[row_A, parent_A] -= 1
        self.last.data[row_A, parent_A] = place.position_T[row_A]
        near_A = self.layer.data[row_A, parent_A] == place.layer_T[row_A] - 1
        one_A = torch.ones_like(row_A)
        self.place = replace(
            place,
            degree_T=place.degree_T.index_add(0, row_A, one_A),
            open_T=place.open_T.index_add(0, row_A, -one_A),
            open_before_T=place.open_before_T.index_add(0, row_A, -near_A.long()),
        )

    def plan(self, position: int, planned_B: Tensor, room_B: Tensor) -> None:
        """Note how many children the newest node shall have, and how many it may."""
        self.planned.write(position, planned_B)
        self.room.write(position, room_B)
        self.place = replace(
            self.place,
            planned_T=planned_B,
            open_T=self.place.open_T + planned_B,
            open_layer_T=self.place.open_layer_T + planned_B,
        )
