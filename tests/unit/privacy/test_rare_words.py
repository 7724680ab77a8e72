"""Words of sampled programs that few training programs have."""

from dataclasses import replace

from layerdag.dag.dag import DAG, graph_hashes
from layerdag.datasets.programs import load_programs
from layerdag.datasets.settings import ProgramsConfig
from layerdag.privacy.rare_words import rare_words


def with_word(dag: DAG, code: int) -> DAG:
    """Return a program whose first call is another word."""
    x_NA = dag.x_NA.clone()
    x_NA[0, 0] = code
    return replace(dag, x_NA=x_NA)


def test_words_of_fewer_than_five_distinct_programs_are_counted():
    data = load_programs(ProgramsConfig(families=("dlrm",)))
    dags = data.graphs["train"]
    train = list(dict(zip(graph_hashes(dags), dags, strict=True)).values())
    usual = train[:60]
    used = {int(code) for dag in usual for code in dag.x_NA[:, 0]}
    other = next(code for code in range(data.schema.attributes[0].num_codes) if code not in used)
    odd = with_word(usual[0], other)
    assert rare_words(data.schema, train, usual).samples == 0
    found = rare_words(data.schema, usual, [odd, usual[1], odd])
    assert (found.rare, found.samples) == (1, 2)
    # Copies of one program do not make its words common; five programs do.
    assert rare_words(data.schema, [*usual, *[odd] * 9], [odd]).rare == 1
    five = [with_word(dag, other) for dag in usual[:5]]
    assert rare_words(data.schema, [*usual, *five], [odd]).rare == 0
