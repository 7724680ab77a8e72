"""What a drawing of a DAG needs: nodes, classes, edges."""

from dataclasses import dataclass

from layerdag.graph import DAG


@dataclass(frozen=True, eq=False)
class Picture:
    """A graph to be drawn.

    Attributes:
        title: Caption.
        dag: The graph.
        label_N: Text that appears when a node is pointed at.
        class_N: Class of each node, shown as color and in the legend.
    """

    title: str
    dag: DAG
    label_N: tuple[str, ...]
    class_N: tuple[str, ...]
