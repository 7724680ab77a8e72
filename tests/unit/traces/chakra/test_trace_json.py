import json

import pytest
from trace_examples import pair_workload, rich_trace

from layerdag.errors import TraceError
from layerdag.traces import Workload
from layerdag.traces.chakra import decode_trace_json, encode_trace, encode_trace_json


def test_nothing_is_lost() -> None:
    workload = Workload((rich_trace(), *pair_workload().traces), {"1": (2, 0)})
    again = decode_trace_json(encode_trace_json(workload))
    assert [encode_trace(t) for t in again.traces] == [encode_trace(t) for t in workload.traces]
    assert again.groups == workload.groups


def test_shared_traces_are_written_once() -> None:
    trace = rich_trace()
    data = encode_trace_json(Workload((trace, trace)))
    assert len(json.loads(data)["traces"]) == 1
    first, second = decode_trace_json(data).traces
    assert first is second


@pytest.mark.parametrize(
    "change",
    [
        lambda j: j.pop("ranks"),
        lambda j: j.update(ranks=[4]),
        lambda j: j.update(groups=[1]),
        lambda j: j["traces"][0]["nodes"][0].update(type="MAGIC"),
        lambda j: j["traces"][0]["nodes"][0].update(id="x"),
        lambda j: j["traces"][0]["nodes"][0]["attributes"][0].update(type="int65_val"),
        lambda j: j["traces"][0]["nodes"][0].pop("name"),
    ],
)
def test_damaged_json_is_refused(change) -> None:
    loaded = json.loads(encode_trace_json(pair_workload()))
    change(loaded)
    with pytest.raises(TraceError, match=r"x\.json"):
        decode_trace_json(json.dumps(loaded).encode(), "x.json")
