"""What a first pass over graphs must remember to split them and to learn their schema.

Of every graph a name, a hash and a number; of every word the first training graph that has it; and
so many whole graphs as memory is granted for. These are the first ones of the split's own order,
which is random and puts training graphs first, so that they are a fair sample of those.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from layerdag.codec import EDGE_TYPES, AttributedGraph
from layerdag.codec.blocks import is_rolled
from layerdag.datasets import Sizes, Split, content_key, split_keys, split_priority
from layerdag.datasets.sources import MAX_WORDS, words_of
from layerdag.errors import DataError

_NO_TRAINING = 1 << 64


@dataclass(frozen=True)
class Seen:
    """What is remembered of a graph.

    Attributes:
        name: Its name.
        key: ``content_key``.
        priority: Its place in the order of the split.
    """

    name: str
    key: str
    priority: int


@dataclass
class Survey:
    """What was seen so far.

    Attributes:
        seed: Of the split.
        named: Split of each graph by its name, where a label file says it; else empty.
        most_nodes: Nodes of the whole graphs that are kept, together.
        seen: Every graph, in the order of the pass.
        texts: Attributes that are words, in the order of the models' columns.
        numbers: Attributes that are numbers.
        edge_types: Names of edge types.
        rolled: Whether every graph is a job with blocks rolled up.
        words: First priority of a training graph with each word, by what holds it.
    """

    seed: int
    named: Mapping[str, Split]
    most_nodes: int
    seen: list[Seen] = field(default_factory=list)
    texts: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    edge_types: dict[str, None] = field(default_factory=dict)
    rolled: bool = True
    words: dict[str, dict[str, int]] = field(default_factory=dict)
    _kept: list[tuple[int, int, AttributedGraph]] = field(default_factory=list)
    _nodes: int = 0

    def add(self, graph: AttributedGraph) -> None:
        """Look at a graph."""
        key = content_key(graph)
        seen = Seen(graph.name, key, split_priority(key, self.seed))
        self.seen.append(seen)
        for known, names in ((self.texts, graph.categories), (self.numbers, graph.numbers)):
            for name in names:
                known[name] = known.get(name, 0) + 1
        self.edge_types |= dict.fromkeys(graph.edge_type_names)
        self.rolled &= is_rolled(graph, EDGE_TYPES)
        first = seen.priority if self._may_train(graph.name) else _NO_TRAINING
        for holder, words in words_of(graph).items():
            known = self.words.setdefault(holder, {})
            for word in words:
                known[word] = min(first, known.get(word, _NO_TRAINING))
        heapq.heappush(self._kept, (-first, -len(self.seen), graph))
        self._nodes += graph.num_nodes
        while self._nodes > self.most_nodes and len(self._kept) > 1:
            self._nodes -= heapq.heappop(self._kept)[2].num_nodes

    def _may_train(self, name: str) -> bool:
        """Return whether a graph is not named as one for validation or test."""
        return not self.named or self.named.get(name, "train") == "train"

    @property
    def is_whole(self) -> bool:
        """Whether every graph was kept."""
        return len(self._kept) == len(self.seen)

    def kept(self) -> list[AttributedGraph]:
        """Return the graphs that were kept, in the order of the pass."""
        return [graph for _, _, graph in sorted(self._kept, key=lambda one: -one[1])]

    def splits(self, sizes: Sizes) -> Iterator[tuple[Seen, Split]]:
        """Yield every graph with its split, in the order of the split."""
        if self.named:
            yield from ((seen, self.named.get(seen.name, "train")) for seen in self.seen)
            return
        split_of = split_keys({seen.key for seen in self.seen}, self.seed, sizes=sizes)
        by_key: dict[str, list[Seen]] = {}
        for seen in self.seen:
            by_key.setdefault(seen.key, []).append(seen)
        for key, split in split_of.items():
            yield from ((seen, split) for seen in by_key[key])

    def kept_texts(self) -> list[str]:
        """Return the attributes that are words, without those that name nodes.

        Raises:
            DataError: If an attribute is text in one graph and a number in another.
        """
        both = sorted(self.texts.keys() & self.numbers.keys())
        if both:
            raise DataError(
                f"Attribute '{both[0]}' is text in some graphs and a number in others, which takes "
                "all graphs in memory; make it one of both, or pack with more --schema-nodes."
            )
        for name, graphs in self.texts.items():
            if graphs < len(self.seen):
                self.words[name].setdefault("", 0)
        return [name for name in self.texts if len(self.words[name]) <= MAX_WORDS]

    def training_words(self, last: int) -> dict[str, tuple[str, ...]]:
        """Return the words of each attribute that training graphs have.

        Args:
            last: Priority of the last training graph.
        """
        return {
            name: tuple(word for word, first in self.words[name].items() if first <= last)
            for name in self.texts
        }
