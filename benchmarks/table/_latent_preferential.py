"""LayerDAG's synthetic graphs with a hard rule on the predecessors of every node."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.latent_preferential import is_valid, load_latent_preferential
from layerdag.datasets.settings import LatentPreferentialConfig

from ._base import Options, Task, make_runs
from ._learners import BASELINES, REFERENCES, Learner, fit_fast
from ._page import Words, page_of_tasks
from ._runs import Record, Store

RHOS = (0.0, 0.5, 1.0)
TRAIN, VAL, TEST = 1000, 100, 300

# A further parent depends on all that the node has already; how many children a node will get
# does not follow from earlier ones here, and no node may be excluded as a parent for it.
_FREE = {
    "depth": 2,
    "width": 64,
    "predict_out_degree": False,
    "heads": {"chosen_parents": "all"},
    "encoder": {"dropout": 0.0, "token_dropout": 0.0},
    "copies": 8,
}
_OBSERVED = {"out_degree": "unlimited", "neighbors": "observed"}
_PLAIN = {"one draw": {"best_of": 1, "temperature": 1.0}}


def _fast(temperature: float) -> dict[str, Any]:
    sampling = {"best_of": 8, "temperature": temperature, "variants": _PLAIN}
    return {**_FREE, "constraints": _OBSERVED, "sampling": sampling}


LEARNERS = (
    Learner("fast", "`fast`", fit_fast, (_fast(1.0), _fast(0.7), _fast(0.5))),
    *REFERENCES,
    *BASELINES,
    Learner("fast_default", "`fast`, default settings, one draw", fit_fast, everywhere=False),
)


def _load(rho: float, train: int | None) -> GraphDataset:
    data = load_latent_preferential(
        LatentPreferentialConfig(rho=rho, num_train=train or TRAIN, num_val=VAL, num_test=TEST)
    )
    return data.conditioned_on(())


def _others(rho: float, count: int) -> Sequence[DAG]:
    """Return graphs that come after those of the test part."""
    data = load_latent_preferential(
        LatentPreferentialConfig(rho=rho, num_train=1, num_val=1, num_test=TEST + count)
    )
    return data.graphs["test"][TEST:]


class LatentPreferential:
    """Three tolerances of the rule."""

    name = "latent-preferential"
    about = "graphs with a hard rule on predecessors: validity without writing the rule down"

    def tasks(self) -> list[Task]:
        """Return a task for each tolerance; settings are chosen at the strictest."""
        return [
            Task(
                f"rho{rho:g}",
                partial(_load, rho),
                partial(is_valid, rho=rho),
                partial(_others, rho),
            )
            for rho in RHOS
        ]

    def make(self, store: Store, options: Options) -> Iterator[Record]:
        """Make the runs."""
        yield from make_runs(store, self.tasks(), LEARNERS, options)

    def page(self, records: Sequence[Record]) -> str:
        """Return the page."""
        titles = {learner.name: learner.title for learner in LEARNERS}
        titles = {"fast": titles["fast"], "fast, one draw": "`fast`, one draw", **titles}
        return page_of_tasks(self.name, records, titles, WORDS)


WORDS = Words(
    title="A latent rule in synthetic graphs",
    before=(
        "LayerDAG's synthetic graphs (arXiv 2411.02322, section 5.1): each node has one of two "
        "values, and its predecessors are balanced between them. With n of the rarer and m of the "
        "commoner value among a node's predecessors, m is at most (1 + rho) n. A graph is valid if "
        "all of its nodes keep this. Generators see 1,000 valid graphs and no rule; the first row "
        "is of real graphs that are in no part. The tolerance rho is 0 unless a column says "
        "otherwise (one fit each).\n\n"
        "`fast` has `heads.chosen_parents=all` and no out-degree prediction, and samples with "
        "`constraints.neighbors=observed best_of=8`, a learned list of neighbors that can nearly "
        'hold a rule as simple as this one and explains most of the figure; "one draw" is the same '
        "model without the list, drawn once at temperature 1. The list counts neighbors of a kind "
        "up to three, so it cannot hold the rule of tolerance 0.5."
    ),
    tasks={f"rho{rho:g}": f"tolerance {rho:g}" for rho in RHOS},
    published=(
        "Published figures are the shares of valid graphs in the LayerDAG paper, which also has "
        "D-VAE 27, GraphPNAS 23 and LayerDAG without diffusion 26 at tolerance 0. **Not directly "
        "comparable**: the paper's generator of graphs is not public; ours has 3 to 8 layers of at "
        "most 6 nodes with at most 6 predecessors. A graph of one layer breaks no rule, so read "
        "validity beside the distances."
    ),
    figures={
        "rho0": {"reference": "56 ± 2", "recurrent": "25 (GraphRNN)", "diffusion": "37 (one-shot)"},
        "rho1": {"reference": "96"},
    },
)
