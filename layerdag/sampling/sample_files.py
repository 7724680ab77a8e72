"""``SampleFiles``: the files of one sample."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from layerdag.codec.unfolding import Unfolded
from layerdag.datasets.run_plans import corpus_strategy
from layerdag.graph.attributed_graph import LABEL, AttributedGraph, Condition, encode_json
from layerdag.graph.formats import program_json
from layerdag.graph.formats.graphml import encode_graphml
from layerdag.programs.targets import Targets, step_time_of
from layerdag.runtime.files import write_bytes
from layerdag.runtime.reading import written_bytes
from layerdag.samples.manifest import ENDINGS
from layerdag.sampling.step_derivation import DerivedJob
from layerdag.traces.chakra.workload import encode_workload, write_workload

_ENCODERS: Mapping[str, Callable[[AttributedGraph], bytes]] = {
    "graphml": encode_graphml,
    "json": encode_json,
    "program": lambda graph: program_json.encode_program_json(graph).encode(),
}


@dataclass(frozen=True, eq=False)
class SampleFiles:
    """One sample before it is written.

    In the format "et" it has traces (``unfolded``); a program then also has the derived job, and
    ``targets`` the cluster that times it.
    """

    graph: AttributedGraph
    file_format: str
    unfolded: Unfolded | None
    job: DerivedJob | None = None
    targets: Targets | None = None

    @property
    def num_bytes(self) -> int:
        """About how large the files are together."""
        nodes = self.graph.num_nodes
        if self.unfolded is not None:
            nodes = sum(trace.num_nodes for trace in self.unfolded.workload.traces)
        return written_bytes(nodes, self.file_format)

    def encoded(self) -> tuple[Mapping[str, object], list[tuple[str, bytes]]]:
        """Return what the entry says of them, and name and content of each file."""
        name = self.graph.name
        if self.unfolded is not None:
            files = encode_workload(self.unfolded.workload, name)
            if self.job is not None:
                files.append(self._program_file())
            return self._facts(self.unfolded), files
        file = f"{name}{ENDINGS[self.file_format]}"
        return {"file": file}, [(file, _ENCODERS[self.file_format](self.graph))]

    def write(self, folder: Path) -> Mapping[str, object]:
        """Write them into ``folder`` and return what the manifest says of them."""
        name = self.graph.name
        if self.unfolded is not None:
            (folder / name).mkdir()
            write_workload(self.unfolded.workload, folder / name / name)
            if self.job is not None:
                file, content = self._program_file()
                write_bytes(folder / name / file, content)
            return self._facts(self.unfolded)
        path = folder / f"{name}{ENDINGS[self.file_format]}"
        write_bytes(path, _ENCODERS[self.file_format](self.graph))
        return {"file": path.name}

    def _program_file(self) -> tuple[str, bytes]:
        return f"{self.graph.name}{program_json.SUFFIX}", _ENCODERS["program"](self.graph)

    def _facts(self, unfolded: Unfolded) -> Mapping[str, object]:
        plan: dict[str, object] = {}
        if self.job is not None:
            plan["plan"] = dict(self.job.plan.settings)
            job: dict[str, Condition] = {
                "strategy": corpus_strategy(self.job.plan.strategy),
                "phase": "training",
                "world_size": str(unfolded.workload.num_ranks),
            }
            plan["job"] = job
            if self.job.timed and self.targets is not None:
                job[LABEL] = step_time_of(unfolded.workload, self.targets)
        return {
            **plan,
            "ranks": unfolded.workload.num_ranks,
            "repairs": dict(unfolded.repairs),
            "completions": dict(unfolded.completions),
        }
