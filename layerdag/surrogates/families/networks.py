"""Message passing as a surrogate: the network, its training on one target or several.

It shares its pooling with the posterior (``layerdag.models.Posterior``) and nothing else, on
purpose. The posterior chooses among candidate graphs while they are sampled; a surrogate of the
same architecture would favor what that choice favors, and no longer measure from outside how useful
the samples are. It also reads positions inside bins, which a posterior over codes does not have.

Shape letters: B graphs, D width of a state, E edges, N nodes, P pairs, T targets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import LABEL
from layerdag.models.layers import segment_log_sum_exp, segment_max, segment_mean
from layerdag.runtime.native import set_openmp_passive
from layerdag.runtime.rng import derive_seed, numpy_generator
from layerdag.runtime.terminal import track
from layerdag.surrogates.families.base import SurrogateModel, TargetScale

if TYPE_CHECKING:  # PyTorch Geometric takes seconds to import
    from torch_geometric.data import Batch, Data


class _Round(nn.Module):
    """One round of messages along the edges and against them, with a residual and a norm.

    Graph isomorphism with edge features (Hu et al., ICLR 2020) for either direction.
    """

    def __init__(self, width: int) -> None:
        from torch_geometric.nn import GINEConv

        super().__init__()
        self.down = GINEConv(_two_layers(width, width))
        self.up = GINEConv(_two_layers(width, width), flow="target_to_source")
        self.norm = nn.LayerNorm(width)

    def forward(
        self,
        h_ND: Float[Tensor, "N D"],
        edge_index_2E: Int[Tensor, "2 E"],
        edge_ED: Float[Tensor, "E D"],
    ) -> Float[Tensor, "N D"]:
        """Return updated node states."""
        heard_ND = self.down(h_ND, edge_index_2E, edge_ED) + self.up(h_ND, edge_index_2E, edge_ED)
        return self.norm(h_ND + heard_ND)


class MessagePassingNetwork(nn.Module):
    """Maps a batch of graphs to a standardized number for each of its targets.

    Nodes start as the sum of the embeddings of their attribute codes and a linear map of their
    positions inside the bins. The pooling joins mean, maximum and log-sum-exp: the last is a sum in
    the log domain, as a step time is the sum of its operators' times.
    """

    def __init__(
        self, sizes: GraphSizes, width: int = 64, rounds: int = 3, outputs: int = 1
    ) -> None:
        super().__init__()
        self.embed_attribute = nn.ModuleList(nn.Embedding(k, width) for k in sizes.attributes)
        self.embed_position = nn.Linear(len(sizes.attributes), width)
        self.embed_edge_type = nn.Embedding(sizes.edge_types, width)
        self.rounds = nn.ModuleList(_Round(width) for _ in range(rounds))
        self.head = _two_layers(3 * width, width, out=outputs)

    def forward(self, batch: "Batch") -> Float[Tensor, "B ..."]:
        """Return standardized predictions, shape (B,), or (B, T) of several targets.

        Args:
            batch: PyG batch with ``x`` int64 (N, A), ``u`` float32 (N, A), ``edge_index`` (2, E),
                ``edge_attr`` int64 (E, 1) and ``batch`` (N,), as ``layerdag.datasets.to_pyg`` makes
                them.
        """
        h_ND = self.embed_position(batch.u)
        for column, table in enumerate(self.embed_attribute):
            h_ND = h_ND + table(batch.x[:, column])
        edge_ED = self.embed_edge_type(batch.edge_attr[:, 0])
        for step in self.rounds:
            h_ND = step(h_ND, batch.edge_index, edge_ED)
        mean_BD = segment_mean(h_ND, batch.batch, batch.ptr.diff())
        max_BD = segment_max(h_ND, batch.batch, mean_BD.shape[0])
        log_sum_BD = segment_log_sum_exp(h_ND, batch.batch, max_BD)
        pooled_BD = torch.cat([mean_BD, max_BD, log_sum_BD], dim=1)
        return cast(Tensor, self.head(pooled_BD)).squeeze(1)


def _two_layers(width_in: int, width: int, out: int | None = None) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width_in, width), nn.ReLU(), nn.Linear(width, width if out is None else out)
    )


NODES_A_BATCH = 20_000


@dataclass(frozen=True)
class NetworkSettings:
    """How to build and train the network.

    Attributes:
        learning_rate: Peak of the one-cycle schedule.
        validation_fraction: Fraction of graphs held back to choose the best epoch.
        ranking_weight: Weight of the ranking loss beside the Huber loss; 0 leaves it out.
    """

    width: int = 48
    rounds: int = 3
    epochs: int = 30
    batch_size: int = 16
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    validation_fraction: float = 0.15
    ranking_weight: float = 0.0


@dataclass(frozen=True, eq=False)
class NetworkSurrogate(SurrogateModel):
    """A trained network with all that is needed to rebuild it.

    Attributes:
        sizes: Codes that the graphs may have.
        outputs: Targets that share the network, one for each of its outputs in this order; none
            where it has one target.
        output: Which of these is predicted.
    """

    sizes: GraphSizes
    scale: TargetScale
    settings: NetworkSettings
    network: MessagePassingNetwork
    outputs: tuple[str, ...] = ()
    output: int = 0

    @property
    def family(self) -> str:
        """The name "message_passing"."""
        return "message_passing"

    def predict(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return one prediction per graph, float64 (B,)."""
        if not dags:
            return np.zeros(0)
        data = [known_data(dag, self.sizes) for dag in dags]
        standard_B = standard_predictions(self.network, data)[:, self.output]
        return self.scale.restore(standard_B.double().numpy())

    def shares_arrays(self, other: SurrogateModel) -> bool:
        """Return whether the other one predicts by another output of the same network."""
        return isinstance(other, NetworkSurrogate) and other.network is self.network

    def config(self) -> Mapping[str, object]:
        """Return sizes, scale and settings, and which output of a shared network it is."""
        shared = {"outputs": list(self.outputs), "output": self.output} if self.outputs else {}
        return {
            "sizes": asdict(self.sizes),
            "scale": asdict(self.scale),
            "settings": asdict(self.settings),
            **shared,
        }

    def arrays(self) -> Mapping[str, np.ndarray]:
        """Return the weights."""
        return {name: value.numpy() for name, value in self.network.state_dict().items()}


def known_data(dag: DAG, sizes: GraphSizes) -> "Data":
    """Return the graph as PyG ``Data`` whose codes the network has embeddings for.

    Raises:
        DataError: If codes do not fit ``sizes``.
    """
    limits_A = torch.tensor(sizes.attributes)
    if dag.x_NA.shape[1] != limits_A.numel():
        raise DataError(
            f"A graph has {dag.x_NA.shape[1]} node attributes but the surrogate knows "
            f"{limits_A.numel()}; encode it with the schema the surrogate was fitted with."
        )
    outside = bool(((dag.x_NA < 0) | (dag.x_NA >= limits_A)).any())
    if outside or bool(((dag.edge_type_E < 0) | (dag.edge_type_E >= sizes.edge_types)).any()):
        raise DataError(
            "A graph has a code that the surrogate does not know; encode it with the schema the "
            "surrogate was fitted with."
        )
    return dag.with_conditions({LABEL: 0.0}).to_pyg()


def standard_predictions(
    network: MessagePassingNetwork, data: "list[Data]"
) -> Float[Tensor, "B T"]:
    """Return standardized predictions of at least one graph, in batches of bounded size."""
    from torch_geometric.data import Batch

    set_openmp_passive()
    network.eval()
    ends = np.cumsum([one.num_nodes for one in data]) // NODES_A_BATCH
    cuts = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(data)]
    with torch.inference_mode():
        parts = [
            network(Batch.from_data_list(data[first:last]))
            for first, last in pairwise(cuts)
            if last > first
        ]
    return torch.cat(parts).reshape(len(data), -1)


def train_network(
    dags: Sequence[DAG],
    standard_BT: np.ndarray,
    sizes: GraphSizes,
    settings: NetworkSettings,
    seed: int,
) -> MessagePassingNetwork:
    """Train a network; the weights of the epoch with the least validation loss are kept.

    Its initial weights depend on ``seed`` alone; the global random stream is left as is.

    Raises:
        DataError: If a code lies outside ``sizes``.
    """
    from torch_geometric.loader import DataLoader

    set_openmp_passive()
    data = [known_data(dag, sizes) for dag in dags]
    for one, standard_T in zip(data, standard_BT, strict=True):
        one.y = torch.from_numpy(standard_T).float()[None]
    order = numpy_generator(seed, "split").permutation(len(data)).tolist()
    held_back = int(settings.validation_fraction * len(data))
    validation = [data[i] for i in order[:held_back]]
    generator = torch.Generator().manual_seed(derive_seed(seed, "order"))
    train = [data[i] for i in order[held_back:]]
    loader = DataLoader(train, settings.batch_size, shuffle=True, generator=generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "weights"))
        network = MessagePassingNetwork(
            sizes, settings.width, settings.rounds, standard_BT.shape[1]
        )
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, settings.learning_rate, total_steps=settings.epochs * len(loader) + 1
        )
        best, best_weights = float("inf"), network.state_dict()
        for _ in track(range(settings.epochs), "surrogate", settings.epochs):
            network.train()
            for batch in loader:
                predicted_BT = network(batch).reshape(batch.y.shape)
                loss = loss_of(predicted_BT, batch.y, settings.ranking_weight)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimizer.step()
                schedule.step()
            loss_now = 0.0  # without validation graphs the last epoch is kept
            if validation:
                y_BT = torch.cat([one.y for one in validation])
                loss_now = float(loss_of(standard_predictions(network, validation), y_BT))
            if loss_now <= best:
                best = loss_now
                best_weights = {name: value.clone() for name, value in network.state_dict().items()}
        network.load_state_dict(best_weights)
    return network


def loss_of(
    predicted_BT: Float[Tensor, "B T"], target_BT: Float[Tensor, "B T"], ranking_weight: float = 0.0
) -> Float[Tensor, ""]:
    """Return the sum over targets of Huber and ranking loss, each over graphs that have it."""
    loss = predicted_BT.new_zeros(())
    for predicted_B, target_B in zip(predicted_BT.T, target_BT.T, strict=True):
        known_B = target_B.isfinite()
        if not known_B.any():
            continue
        loss = loss + nn.functional.huber_loss(predicted_B[known_B], target_B[known_B])
        if ranking_weight:
            loss = loss + ranking_weight * ranking_loss(predicted_B[known_B], target_B[known_B])
    return loss


def ranking_loss(
    predicted_B: Float[Tensor, " B"], target_B: Float[Tensor, " B"]
) -> Float[Tensor, ""]:
    """Return the mean logistic loss of the order of each pair (RankNet; Burges et al., ICML 2005).

    Pairs of equal targets have no order; without any other pair the loss is 0.
    """
    above_BB = target_B[:, None] > target_B[None, :]
    margin_BB = predicted_B[:, None] - predicted_B[None, :]
    return nn.functional.softplus(-margin_BB[above_BB]).sum() / above_BB.sum().clamp(min=1)


def fit_message_passing(
    dags: Sequence[DAG],
    target_B: np.ndarray,
    sizes: GraphSizes,
    *,
    seed: int = 0,
    settings: NetworkSettings | None = None,
) -> NetworkSurrogate:
    """Fit a network to one target.

    Raises:
        UsageError: If there are fewer than two graphs, or a target is not finite.
        DataError: If a code lies outside ``sizes``.
    """
    target_B, settings = np.asarray(target_B, dtype=float), settings or NetworkSettings()
    scale = TargetScale.fit(target_B)
    network = train_network(dags, scale.standardize(target_B)[:, None], sizes, settings, seed)
    return NetworkSurrogate(sizes, scale, settings, network)


def fit_several(
    dags: Sequence[DAG],
    targets: Mapping[str, np.ndarray],
    sizes: GraphSizes,
    settings: NetworkSettings,
    seed: int,
) -> tuple[NetworkSurrogate, ...]:
    """Fit one network to several targets, and return a surrogate for each of its outputs.

    Multitask learning with a shared encoder (Caruana, Machine Learning 28, 1997): the loss is the
    sum over the targets, each standardized by itself.

    Raises:
        UsageError: If fewer than two graphs have one of the targets.
        DataError: If a code lies outside ``sizes``.
    """
    names = tuple(targets)
    scales = [TargetScale.fit(y_B[np.isfinite(y_B)]) for y_B in targets.values()]
    columns = [scale.standardize(y_B) for scale, y_B in zip(scales, targets.values(), strict=True)]
    network = train_network(dags, np.stack(columns, axis=1), sizes, settings, seed)
    outputs = names if len(names) > 1 else ()  # of one target it is the network of that target
    return tuple(
        NetworkSurrogate(sizes, scale, settings, network, outputs, output)
        for output, scale in enumerate(scales)
    )
