"""What the kernels in C read and write (``native/sample``): a model's tables, and memory of rows.

Shape letters: B graphs, E edges, F feature columns, H heads, K codes, P pairs, R rows, X selected
graphs.
"""

import ctypes
from functools import cache
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from layerdag.models.fast.encoder import WindowEncoder, alibi_slopes
from layerdag.models.fast.layout import NEVER
from layerdag.models.fast.neighbor_kinds import NATS_PER_VIOLATION, KindAutomaton
from layerdag.models.fast.networks import FastNetworks
from layerdag.models.fast.particles import NATS_PER_FIRST
from layerdag.models.fast.sampling_inputs import CodeMasks, SamplingTask
from layerdag.models.fast.tokens import Feature
from layerdag.models.fused import NUMBER, POINTER, structure
from layerdag.models.layers import CountEncoder
from layerdag.runtime.native import library

RESERVED_NUMBERS = 1 << 28
"""Numbers for which address space is reserved at once; more positions are copied when they come."""

_MAX_OPTIONS = 64  # for which kernels have room

_TYPES: dict[str, type] = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "f": ctypes.c_float}
_ARGUMENTS = {
    "embed": "pp",
    "remaining": "pififp",
    "attend": "ppippp",
    "append": "p",
    "normalize": "ippp",
    "activate": "ippp",
    "gelu": "ip",
    "sizes": "pip",
    "start_nodes": "p",
    "add_place": "p",
    "first_parents": "ppp",
    "kinds": "ppp",
    "in_degrees": "p",
    "start_parents": "ppp",
    "edge_types": "ippp",
    "further_parents": "ippppp",
    "choose": "ppppppp",
    "attribute": "ippppp",
    "set_out_degrees": "pp",
}
"""Arguments of each kernel after the model and the rows: pointers, integers and floats."""


# Each is kept in step with the structure of its name in native/sample/sample.h.
_Counter = structure("_Counter", ("lows", POINTER), ("codes", NUMBER))
_Automaton = structure("_Automaton", ("start key target final", POINTER), ("keys kinds", NUMBER))
_Model = structure(
    "_Model",
    ("width key_width kinds types codes attributes token_features projections dynamic", NUMBER),
    ("attribute_start", POINTER),
    ("size in_degree token_count", _Counter),
    ("token_table slot_table stub_table kind_table degree_table open_table token_offset", POINTER),
    ("source observed pairs known_degrees min_parents max_parents first_state next_state", POINTER),
    ("most_degree", NUMBER),
    ("of_parents of_children", _Automaton),
    ("offset", POINTER),
)
_Layer = structure("_Layer", ("heads attends messages", NUMBER), ("slope memory pooled", POINTER))
_OF_CANDIDATES = "group first kind_P degree kind_group type_state parent edge_start base"
_Rows = structure(
    "_Rows",
    ("rows options passes memory_rows block pages position weighted", NUMBER),
    ("temperature guidance scale", ctypes.c_float),
    ("per_violation per_first", ctypes.c_double),
    ("seed possible sample layer_start before_start sibling structure out_degree used", POINTER),
    ("room last layer kind children color key block_key projection log_weight", POINTER),
    (_OF_CANDIDATES, POINTER),
    ("edge_parent edge_type", POINTER),
)


@cache
def _kernels() -> ctypes.CDLL:
    kernels = library()
    for name, arguments in _ARGUMENTS.items():
        function = getattr(kernels, f"sample_{name}")
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, *(_TYPES[a] for a in arguments)]
        function.restype = ctypes.c_int64
    kernels.sample_copy_rows.argtypes = [_TYPES[a] for a in "piiiiipp"]
    kernels.sample_copy_rows.restype = None
    return kernels


def _address(argument: Any) -> Any:
    """Return where an array lies; other arguments as they are."""
    if isinstance(argument, Tensor):
        return argument.data_ptr()
    return argument.ctypes.data if isinstance(argument, np.ndarray) else argument


@final
class ModelTables:
    """Sizes, embeddings and constraints of a model."""

    def __init__(self, modules: FastNetworks, masks: CodeMasks) -> None:
        self._kept: list[Tensor] = []  # what the pointers point to
        heads, constraints, type_sets = modules.heads, modules.constraints, modules.type_sets
        tokens, at = modules.tokens, self._pointed
        starts = [*modules.allowed.starts, masks.pairs_FF.shape[0]]
        kinds = modules.allowed.sizes[0]
        every_kind = constraints.observed_F.new_ones(kinds)
        # Kernels take for granted that all tables are of one model.
        of_kinds = (
            (constraints.source_K, constraints.min_parents_K, constraints.max_parents_K),
            (modules.neighbors.of_parents.start_K, modules.neighbors.of_children.start_K),
            (modules.neighbors.offset_K, type_sets.first_state, type_sets.known_degrees),
        )
        assert all(len(table) == kinds for tables in of_kinds for table in tables)
        assert masks.pairs_FF.shape[1] == masks.graph_BF.shape[1] == starts[-1]
        assert constraints.observed_F.shape[0] == starts[-1] - kinds
        self.structure = _Model(
            width=tokens.embedding.weight.shape[1],
            key_width=heads.pointer.key.out_features,
            kinds=kinds,
            types=type_sets.next_state.shape[1],
            codes=starts[-1],
            attributes=len(modules.allowed.sizes),
            token_features=tokens.embedding.offset_F.shape[0],
            projections=3 + (heads.chosen_parents is not None),
            dynamic=heads.pointer.dynamic,
            attribute_start=at(torch.tensor(starts)),
            size=self._counter(heads.size),
            in_degree=self._counter(heads.in_degree),
            token_count=self._counter(tokens.scale),
            token_table=at(tokens.embedding.weight),
            slot_table=at(heads.slot.weight),
            stub_table=at(heads.first_stub.weight),
            kind_table=at(heads.kind_embedding.weight),
            degree_table=at(heads.degree_embedding.weight),
            open_table=at(heads.open_embedding.weight),
            token_offset=at(tokens.embedding.offset_F),
            source=at(constraints.source_K),
            observed=at(torch.cat([every_kind, constraints.observed_F])),
            pairs=at(masks.pairs_FF),
            known_degrees=at(type_sets.known_degrees),
            min_parents=at(constraints.min_parents_K),
            max_parents=at(constraints.max_parents_K),
            first_state=at(type_sets.first_state),
            next_state=at(type_sets.next_state),
            most_degree=type_sets.first_state.shape[1] - 1,
            of_parents=self._automaton(modules.neighbors.of_parents),
            of_children=self._automaton(modules.neighbors.of_children),
            offset=at(modules.neighbors.offset_K),
        )
        self.possible = at(masks.graph_BF)

    def _pointed(self, values: Tensor) -> int:
        values = values.detach().contiguous()
        self._kept.append(values)
        return values.data_ptr()

    def _counter(self, encoder: CountEncoder) -> ctypes.Structure:
        return _Counter(lows=self._pointed(encoder.lows_K1), codes=encoder.num_codes)

    def _automaton(self, automaton: KindAutomaton) -> ctypes.Structure:
        return _Automaton(
            start=self._pointed(automaton.start_K),
            key=self._pointed(automaton.key_P),
            target=self._pointed(automaton.target_P),
            final=self._pointed(automaton.final_R),
            keys=automaton.key_P.shape[0] - 1,
            kinds=automaton.kinds,
        )


@final
class RowMemory:
    """What is known of every row, of its positions and of its candidates."""

    def __init__(self, task: SamplingTask) -> None:
        modules, seed_B, options = task.modules, task.seed_B, task.options
        encoder, rows = modules.encoder, seed_B.shape[0] - 1
        assert isinstance(encoder, WindowEncoder)
        assert task.masks.graph_BF.shape[0] == seed_B.shape[0]
        assert options <= _MAX_OPTIONS
        self.tables, self._seed_B = ModelTables(modules, task.masks), seed_B
        self._structure = _Rows(
            rows=rows,
            options=options,
            passes=task.guidance.passes,
            memory_rows=rows,
            block=modules.block,
            weighted=task.weighs,
            temperature=task.guidance.temperature,
            guidance=task.guidance.weight,
            scale=self._model.key_width**-0.5,
            per_violation=NATS_PER_VIOLATION,
            per_first=NATS_PER_FIRST,
            seed=seed_B.ctypes.data,
            possible=self.tables.possible,
        )
        self._slope_H = alibi_slopes(encoder.heads, torch.device("cpu"))
        self.layers = [
            _Layer(
                heads=encoder.heads,
                attends=block.attends,
                messages=block.reads_parents,
                slope=self._slope_H.data_ptr(),
            )
            for block in encoder.encoder_blocks
        ]
        self.features_BF = np.zeros((rows, len(Feature)), dtype=np.int64)
        self.features_BF[:, Feature.SIZE] = 1
        self.log_weight_B = np.zeros(rows)
        self._of_rows = {
            "structure": self.features_BF,
            "layer_start": np.ones(rows, dtype=np.int64),
            "before_start": np.ones(rows, dtype=np.int64),
            "sibling": np.full(rows, NEVER, dtype=np.int64),
            "log_weight": self.log_weight_B,
        }
        names = _OF_CANDIDATES.split()
        self._of_candidates = np.zeros((len(names), rows * options), dtype=np.int64)
        candidates = dict(zip(names, self._of_candidates, strict=True))
        for name, values in (self._of_rows | candidates).items():
            setattr(self._structure, name, values.ctypes.data)
        self._edges_2E = np.zeros((2, 0), dtype=np.int64)
        self._of_positions: dict[str, np.ndarray] = {}
        fits = RESERVED_NUMBERS // max(rows * self._numbers_per_position, 1)
        self.reserve_positions(min(task.request.max_nodes + 1, max(fits, 64)))

    @property
    def _model(self) -> ctypes.Structure:
        return self.tables.structure

    @property
    def _numbers_per_position(self) -> int:
        width = self._model.projections + 2 * len(self.layers)
        of_pass = self._model.width * width + self._model.key_width
        return self._structure.passes * of_pass + 2 * len(Feature)

    def call(self, kernel: str, sample_B: Int[np.ndarray, " B"], *arguments: Any) -> int:
        """Call a kernel on tensors, arrays and numbers, and return what it returns.

        Raises:
            MemoryError: If it got no memory.
        """
        self._structure.sample = sample_B.ctypes.data
        found: int = getattr(_kernels(), f"sample_{kernel}")(
            ctypes.addressof(self._model),
            ctypes.addressof(self._structure),
            *map(_address, arguments),
        )
        if found < 0:
            raise MemoryError(f"no memory to draw nodes ({kernel}); ask for a smaller batch_size")
        return found

    def go_to(self, position: int) -> None:
        """Let kernels work at a position."""
        self._structure.position = position
        if position >= self._structure.pages * self._structure.block:
            self.reserve_positions(2 * position)

    def reserve_edges(self, edges: int) -> None:
        """Make room for the edges of all candidates."""
        if edges > self._edges_2E.shape[1]:
            self._edges_2E = np.zeros((2, 2 * edges), dtype=np.int64)
            parent_E, type_E = self._edges_2E
            self._structure.edge_parent = parent_E.ctypes.data
            self._structure.edge_type = type_E.ctypes.data

    def reserve_positions(self, positions: int) -> None:
        """Make room for so many positions of every row, in pages of one attention block each."""
        rows, block, model = self._structure.memory_rows, self._structure.block, self._model
        pages, passes = -(-positions // block), self._structure.passes
        at_positions = {
            name: ((pages, rows, block), np.int64)
            for name in ["out_degree", "used", "room", "last", "layer", "kind", "children"]
        }
        shapes: dict[str, tuple[tuple[int, ...], Any]] = {
            **at_positions,
            "color": ((3, pages, rows, block), np.int64),
            "key": ((pages, rows, passes * block, model.key_width), np.float32),
            "block_key": ((pages, rows, passes * model.key_width), np.float32),
            "projection": (
                (pages, rows, passes * block, model.projections * model.width),
                np.float32,
            ),
        }
        for number in range(len(self.layers)):
            shapes[f"memory {number}"] = (
                (pages, rows, passes * block, 2 * model.width),
                np.float32,
            )
            shapes[f"pooled {number}"] = ((pages, rows, passes * 2 * model.width), np.float32)
        for name, (shape, kind) in shapes.items():
            larger = np.zeros(shape, dtype=kind)  # takes memory where it is written
            if name in self._of_positions:
                before = self._of_positions[name]
                for new, old in zip(_planes(name, larger), _planes(name, before), strict=True):
                    new[: old.shape[0]] = old
            self._of_positions[name] = larger
            field, _, layer = name.partition(" ")
            setattr(
                self.layers[int(layer)] if layer else self._structure, field, larger.ctypes.data
            )
        self._structure.pages = pages

    def select(self, row_B: Int[np.ndarray, " B"]) -> None:
        """Keep the rows ``row_B``; one keeps its place, moves to the front, or is copied."""
        target_X = np.flatnonzero(row_B != np.arange(row_B.shape[0]))
        source_X = row_B[target_X]
        for values in self._of_rows.values():
            values[target_X] = values[source_X]
        block = self._structure.block
        page, last = divmod(self._structure.position, block)
        for name, values in self._of_positions.items():
            for plane in _planes(name, values):
                _, row_bytes, *inner = plane.strides
                # Of the newest page, what is written: of one pass, the positions so far.
                whole = name.startswith(("block_key", "pooled")) or plane.shape[2] > block
                _kernels().sample_copy_rows(
                    plane.ctypes.data,
                    self._structure.memory_rows,
                    page + 1,
                    row_bytes,
                    row_bytes if whole else (last + 1) * inner[0],
                    target_X.shape[0],
                    target_X.ctypes.data,
                    source_X.ctypes.data,
                )
        self._structure.rows = row_B.shape[0]


def _planes(name: str, values: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(values) if name == "color" else (values,)
