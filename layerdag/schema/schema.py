"""``GraphSchema``: what the codes of a data set mean; requests completed by it.

The schema is learned from training graphs only, is part of every checkpoint as JSON beside the
weights, and is all that is needed to turn a sampled graph back into names and numbers. Conditions
that the user leaves open are drawn from what training graphs like the request were like
(``conditions.py``), so that a request for "gpt" gets a strategy, a size and a label that GPT jobs
have.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerdag.dag.dag import COPY_ROUNDS, DAG, HASH_DIGITS, GraphSizes, graph_hashes
from layerdag.dag.program_numbers import MEASURED, condition_units, needed_programs, program_numbers
from layerdag.errors import CheckpointError, GraphError, UsageError, VocabularyError
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.graph.formats.program_json import UNIT, is_size
from layerdag.kinds.graph_kind import GraphKind
from layerdag.kinds.registry import graph_kind
from layerdag.runtime.json_shape import from_json, plain_reason, require_known
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.settings import did_you_mean, shorten
from layerdag.schema.attributes import (
    CategoryAttribute,
    NumericAttribute,
    fit_category,
    require_words,
)
from layerdag.schema.conditions import (
    NO_TABLE,
    CategoryCondition,
    ConditionTable,
    NumericCondition,
    fit_conditions,
    fit_table,
)
from layerdag.schema.durations import RETIRED_KEYS as RETIRED_DURATIONS, Durations
from layerdag.schema.plan_tables import NO_PLANS, PlanColumn, PlanTables, asked_instead
from layerdag.schema.size_tables import NO_SIZES, SizeColumn, SizeTables, fit_sizes

RETIRED_KEYS = frozenset({"costs"})
"""Entries that earlier versions wrote into schemas and nothing reads anymore."""

Attribute = CategoryAttribute | NumericAttribute


@dataclass(frozen=True)
class _Document:
    """A schema as a checkpoint holds it."""

    kind: str
    categories: tuple[CategoryAttribute, ...]
    numbers: tuple[NumericAttribute, ...]
    edge_types: tuple[str, ...]
    numeric_conditions: tuple[NumericCondition, ...]
    category_conditions: tuple[CategoryCondition, ...]
    condition_table: ConditionTable
    sizes: tuple[SizeColumn, ...] = ()
    structures: str = ""
    plans: tuple[PlanColumn, ...] = ()
    durations: Durations | None = None


@dataclass(frozen=True)
class GraphSchema:
    """Names and meanings of everything a data set's graphs carry.

    Attributes:
        attributes: Node attributes in the order of the columns of ``x_NA``.
        edge_types: Name of each edge type, code by position.
        numeric_conditions: Standardized graph-level numbers, in the order of ``numeric_BC``.
        category_conditions: Graph-level categories, in the order of ``category_BM``.
        condition_table: What training graphs were like, to draw plausible requests from.
        structures: Hashes of programs (``structure_hashes``) that samples must not repeat. Whoever
            has them can ask whether a program was trained on.
        durations: How long operators took in training steps; None if unknown.
    """

    kind: GraphKind
    attributes: tuple[Attribute, ...]
    edge_types: tuple[str, ...]
    numeric_conditions: tuple[NumericCondition, ...] = ()
    category_conditions: tuple[CategoryCondition, ...] = ()
    condition_table: ConditionTable = NO_TABLE
    sizes_of_programs: SizeTables = NO_SIZES
    structures: frozenset[str] = frozenset()
    plans: PlanTables = NO_PLANS
    durations: Durations | None = None

    def __repr__(self) -> str:
        """Return the names of attributes and conditions, not all words."""
        conditions = len(self.numeric_conditions) + len(self.category_conditions)
        names = shorten(", ".join(each.name for each in self.attributes), 60)
        return f"GraphSchema({self.kind!r}, attributes: {names}; {conditions} conditions)"

    @classmethod
    def fit(
        cls,
        kind: str | GraphKind,
        graphs: Sequence[AttributedGraph],
        *,
        num_bins: int = 16,
        program_G: np.ndarray | None = None,
    ) -> "GraphSchema":
        """Learn vocabularies, bins and scales from training graphs.

        ``program_G`` is the number of the program of each graph, of which only distinct ones count;
        by default it is found (``program_numbers``). Raises GraphError if there is no graph, or a
        graph has other attributes than the first, and UsageError if there is no such kind.
        """
        kind = graph_kind(kind)
        if not graphs:
            raise GraphError("There is no training graph to learn a schema from.")
        first = graphs[0]
        for graph in graphs:
            if set(graph.categories) ^ set(first.categories) | set(graph.numbers) ^ set(
                first.numbers
            ):
                raise GraphError(
                    f"{graph.name}: has other attributes than {first.name}; all graphs of a data "
                    "set need the same."
                )
        program_G = program_numbers(graphs) if program_G is None else program_G
        shared = needed_programs(program_G)
        categories = [fit_category(name, graphs) for name in first.categories]
        numeric = [
            NumericAttribute.fit(
                name, first.units.get(name, "1"),
                np.concatenate([g.numbers[name] for g in graphs]), num_bins,
                np.repeat(program_G, [g.num_nodes for g in graphs]),
            )
            for name in first.numbers
        ]  # fmt: skip
        rows, unit_G = [graph.conditions for graph in graphs], condition_units(program_G)
        tables = NO_SIZES
        if kind.has_steps:
            tables = fit_sizes(rows, program_G, shared)
            rows = [{name: v for name, v in row.items() if not is_size(name)} for row in rows]
        conditions = fit_conditions(rows, unit_G)
        schema = cls(
            kind=kind,
            attributes=(*categories, *numeric),
            edge_types=tuple(dict.fromkeys(t for g in graphs for t in g.edge_type_names)),
            numeric_conditions=conditions[0],
            category_conditions=conditions[1],
            sizes_of_programs=tables,
        )
        return schema.with_table(rows, unit_G)

    def with_table(
        self, rows: Iterable[Mapping[str, Condition]], program_B: np.ndarray | None = None
    ) -> "GraphSchema":
        """Return the schema with a table of the conditions of training graphs."""
        numeric_BC, category_BM = self.encode_conditions(rows)
        table = fit_table(category_BM.numpy(), numeric_BC.double().numpy(), program_B)
        return replace(self, condition_table=table)

    def conditioned_on(self, names: Sequence[str]) -> "GraphSchema":
        """Return the schema with these conditions alone.

        Raises VocabularyError if there is no condition of such a name; names the nearest.
        """
        for name in names:
            self._check_condition(name)
        numbers = [i for i, c in enumerate(self.numeric_conditions) if c.name in names]
        categories = [i for i, c in enumerate(self.category_conditions) if c.name in names]
        return replace(
            self,
            numeric_conditions=tuple(self.numeric_conditions[i] for i in numbers),
            category_conditions=tuple(self.category_conditions[i] for i in categories),
            condition_table=self.condition_table.narrowed(categories, numbers),
        )

    @property
    def measured_columns(self) -> tuple[int, ...]:
        """Columns of node attributes that differ from run to run of the same program."""
        return tuple(i for i, a in enumerate(self.attributes) if a.name in MEASURED)

    @property
    def size_columns(self) -> tuple[int, ...]:
        """Columns of numbers that are properties of the program, such as FLOPs and bytes."""
        return tuple(
            i
            for i, a in enumerate(self.attributes)
            if isinstance(a, NumericAttribute) and a.name not in MEASURED
        )

    @property
    def condition_names(self) -> list[str]:
        """Names of all conditions, numbers first."""
        numbers = [condition.name for condition in self.numeric_conditions]
        return [*numbers, *(condition.name for condition in self.category_conditions)]

    def sizes(self) -> GraphSizes:
        """Return the counts that fix a model's shapes."""
        return GraphSizes(
            attributes=tuple(attribute.num_codes for attribute in self.attributes),
            edge_types=len(self.edge_types),
            numeric_conditions=len(self.numeric_conditions),
            category_conditions=tuple(len(c.values) for c in self.category_conditions),
        )

    def encode(self, graph: AttributedGraph) -> DAG:
        """Return the graph as codes and positions, nodes in layer order.

        Raises VocabularyError if a value is outside a closed vocabulary and GraphError if the graph
        has a cycle or lacks an attribute.
        """
        return self.codes(graph).in_layer_order()

    def codes(self, graph: AttributedGraph) -> DAG:
        """Return the graph as codes and positions, in its own node order; cycles are not noticed.

        Raises VocabularyError if a value is outside a closed vocabulary and GraphError if the graph
        lacks an attribute.
        """
        codes, positions = [], []
        for attribute in self.attributes:
            source = graph.categories if isinstance(attribute, CategoryAttribute) else graph.numbers
            if attribute.name not in source:
                raise GraphError(
                    f"{graph.name}: attribute '{attribute.name}' is missing; this schema needs "
                    + ", ".join(f"'{a.name}'" for a in self.attributes) + "."
                )  # fmt: skip
            if isinstance(attribute, CategoryAttribute):
                code_N = attribute.encode(graph.categories[attribute.name])
                position_N = np.zeros(len(code_N), np.float32)
            else:
                code_N, position_N = attribute.encode(graph.numbers[attribute.name])
            codes.append(code_N)
            positions.append(position_N)
        code_of = {name: code for code, name in enumerate(self.edge_types)}
        table_T = np.array([code_of.get(name, -1) for name in graph.edge_type_names], np.int64)
        code_E = table_T[graph.edge_type_E]
        if (code_E < 0).any():
            unknown = graph.edge_type_names[int(graph.edge_type_E[np.argmax(code_E < 0)])]
            raise VocabularyError(
                f"{graph.name}: has an edge of type '{unknown}', which no training graph has; "
                f"known are {', '.join(self.edge_types)}."
            )
        return DAG.build(
            torch.from_numpy(np.stack(codes, axis=1)),
            torch.from_numpy(graph.edge_index_2E),
            edge_type_E=torch.from_numpy(code_E),
            u_NA=torch.from_numpy(np.stack(positions, axis=1)),
            conditions=graph.conditions,
        )

    def decode(self, dag: DAG, name: str = "graph") -> AttributedGraph:
        """Return names and numbers for a graph of codes, in its node order."""
        categories, numbers, units = {}, {}, {}
        for column, attribute in enumerate(self.attributes):
            code_N = dag.x_NA[:, column].numpy()
            if isinstance(attribute, CategoryAttribute):
                categories[attribute.name] = attribute.decode(code_N)
            else:
                position_N = dag.u_NA[:, column].numpy()
                numbers[attribute.name] = attribute.decode(code_N, position_N)
                units[attribute.name] = attribute.unit
        return AttributedGraph(
            name=name,
            categories=categories,
            numbers=numbers,
            units=units,
            edge_index_2E=dag.edge_index_2E.numpy(),
            edge_type_E=dag.edge_type_E.numpy(),
            edge_type_names=self.edge_types,
            conditions=dag.conditions,
        )

    def structure_hashes(self, dags: Iterable[DAG]) -> Iterator[str]:
        """Yield a hash of the calls, sizes and edges of each program, whatever its units."""
        units = [i for i, a in enumerate(self.attributes) if a.name == UNIT]
        yield from graph_hashes((dag.without_columns(units) for dag in dags), COPY_ROUNDS)

    def are_copies(self, dags: Sequence[DAG]) -> list[bool]:
        """Return of each program whether it repeats one of the data that ``structures`` tells."""
        if not self.structures:
            return [False] * len(dags)
        return [word in self.structures for word in self.structure_hashes(dags)]

    def encode_conditions(self, rows: Iterable[Mapping[str, Condition]]) -> tuple[Tensor, Tensor]:
        """Return (numeric_BC float32, category_BM int64); a missing value becomes NaN or -1.

        Raises VocabularyError if a condition or category is unknown; names the nearest.
        """
        rows = list(rows)
        for name in dict.fromkeys(name for row in rows for name in row):
            self._check_condition(name)
        numeric = [[c.encode(row.get(c.name)) for c in self.numeric_conditions] for row in rows]
        category = [[c.encode(row.get(c.name)) for c in self.category_conditions] for row in rows]
        shape = (len(rows), -1) if rows else (0, 0)
        return (
            torch.tensor(numeric, dtype=torch.float32).reshape(*shape),
            torch.tensor(category, dtype=torch.int64).reshape(*shape),
        )

    def _check_condition(self, name: str) -> None:
        known = self.condition_names
        if name not in known:
            raise VocabularyError(
                f"There is no condition '{name}'."
                f"{asked_instead(name, known) or did_you_mean(name, known)} "
                f"Known: {', '.join(known) or 'none'}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON-serializable data."""
        return {
            "kind": self.kind.name,
            "categories": [asdict(a) for a in self.attributes if isinstance(a, CategoryAttribute)],
            "numbers": [asdict(a) for a in self.attributes if isinstance(a, NumericAttribute)],
            "edge_types": list(self.edge_types),
            "numeric_conditions": [asdict(c) for c in self.numeric_conditions],
            "category_conditions": [asdict(c) for c in self.category_conditions],
            "condition_table": self.condition_table.to_dict(),
            **({"sizes": self.sizes_of_programs.to_dict()} if self.sizes_of_programs else {}),
            **({"structures": "".join(sorted(self.structures))} if self.structures else {}),
            **({"plans": self.plans.to_dict()} if self.plans else {}),
            **({"durations": self.durations.to_dict()} if self.durations else {}),
        }

    @classmethod
    def from_dict(cls, data: Any) -> "GraphSchema":
        """Return the schema that ``to_dict`` wrote; the data is not trusted.

        Raises CheckpointError if an entry is missing or has another type.
        """
        try:
            if isinstance(data, dict):
                data = {key: value for key, value in data.items() if key not in RETIRED_KEYS}
            found = from_json(_Document, data)
            require_known(data, _names(_Document))
            for row in data["numeric_conditions"]:
                require_known(row, _names(NumericCondition))
            for row in data["category_conditions"]:
                require_known(row, _names(CategoryCondition))
            require_known(data.get("durations", {}), (*_names(Durations), *RETIRED_DURATIONS))
            schema = cls(
                kind=graph_kind(found.kind),
                attributes=(*found.categories, *found.numbers),
                edge_types=found.edge_types,
                numeric_conditions=found.numeric_conditions,
                category_conditions=found.category_conditions,
                condition_table=found.condition_table,
                sizes_of_programs=SizeTables(found.sizes),
                structures=_hashes(found.structures),
                plans=PlanTables(found.plans),
                durations=found.durations,
            )
            schema._check()
        except (ValueError, OverflowError, RecursionError, UsageError) as error:
            raise CheckpointError(
                f"The schema cannot be read ({plain_reason(error)}); use a checkpoint that train "
                "wrote."
            ) from error
        return schema

    def _check(self) -> None:
        """Raise ValueError if parts contradict each other."""
        if not self.edge_types or not self.attributes:
            raise ValueError("attributes or edge types are not those of a data set")
        names = [attribute.name for attribute in self.attributes]
        if len(set(names)) != len(names):
            raise ValueError("two attributes have the same name")
        require_words(self.edge_types)
        for attribute in self.attributes:
            attribute.check()
        for number in self.numeric_conditions:
            number.check()
        for category in self.category_conditions:
            category.check()
        for sizes in self.sizes_of_programs.columns:
            sizes.check()
        for plans in self.plans.columns:
            plans.check()
        if self.durations is not None:
            self.durations.check()
        numbers = [a for a in self.attributes if isinstance(a, NumericAttribute)]
        largest = max((row[-1] for a in numbers for row in a.bins), default=0.0)
        if largest >= self.kind.largest_number:
            raise ValueError(f"{self.kind.plural} hold no number of {self.kind.largest_number:,}")
        counts = [len(condition.values) for condition in self.category_conditions]
        self.condition_table.check(counts, len(self.numeric_conditions))


def _names(cls: type) -> Iterator[str]:
    return (field.name for field in fields(cls))


def _hashes(text: str) -> frozenset[str]:
    if len(text) % HASH_DIGITS or not set(text) <= set("0123456789abcdef"):
        raise ValueError("its structures are no hashes")
    return frozenset(text[at : at + HASH_DIGITS] for at in range(0, len(text), HASH_DIGITS))


def complete_conditions(
    schema: GraphSchema, given: Mapping[str, Condition], seeds: Sequence[int]
) -> list[dict[str, Condition]]:
    """Return full conditions for each seed; each depends on its own seed alone.

    Where the schema has no table, because too few graphs were trained on, open ones stay open.
    Raises VocabularyError if a given condition or category is unknown.
    """
    schema.encode_conditions([given])
    numeric_1C, category_1M = schema.encode_conditions([given])
    if not schema.condition_table.cells:
        return [dict(given) for _ in seeds]
    draws = schema.condition_table.draws(
        category_1M[0].numpy(),
        numeric_1C[0].double().numpy(),
        (numpy_generator(seed, "conditions") for seed in seeds),
    )
    return [{**_decoded(schema, *drawn), **given} for drawn in draws]


def out_of_range_conditions(schema: GraphSchema, given: Mapping[str, Condition]) -> list[str]:
    """Return one sentence for each requested number outside the training range.

    Bounds are compared as the schema keeps them, rounded to 3 significant digits. Raises as
    ``GraphSchema.encode_conditions``.
    """
    schema.encode_conditions([given])
    found = []
    for condition in schema.numeric_conditions:
        value = given.get(condition.name)
        low, high = condition.draw_range()
        if value is not None and not low <= float(f"{float(value):.3g}") <= high:
            found.append(
                f"'{condition.name}' is {float(value):g}, but most graphs that the model "
                f"learned from have {low:g} to {high:g}; what it samples beyond is a guess."
            )
    return found


def _decoded(schema: GraphSchema, code_M: np.ndarray, number_C: np.ndarray) -> dict[str, Condition]:
    """Return drawn conditions in their own units; unknown ones are left out."""
    found: dict[str, Condition] = {}
    for condition, code in zip(schema.category_conditions, code_M.tolist(), strict=True):
        if code >= 0:
            found[condition.name] = condition.values[code]
    for number, scaled in zip(schema.numeric_conditions, number_C.tolist(), strict=True):
        if not np.isnan(scaled):
            low, high = number.draw_range()
            found[number.name] = min(max(number.decode(scaled), low), high)
    return found
