import json

import pytest

from layerdag.errors import TraceError, UsageError
from layerdag.traces.pytorch import import_pytorch
from tests.unit.traces.host_json import MM, node, tensor, write_host
from tests.unit.traces.profile_json import event, kernel, launch, write_profile

HOST = [
    node(3, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(10),)),
    node(4, "aten::mm", MM, (tensor(10), tensor(2)), (tensor(11),)),
]


def profile(*handles: int) -> list[dict]:
    """Two products, whose operators carry the given RecordFunction handles."""
    told = [{"Record function id": handle} if handle else {} for handle in handles]
    return [
        event("cpu_op", "aten::mm", 0, 8, **told[0]),
        launch(1, 2),
        kernel(1, 5, 20),
        event("cpu_op", "aten::mm", 10, 8, **told[1]),
        launch(2, 12),
        kernel(2, 26, 20),
    ]


@pytest.mark.parametrize("handles", [(503, 504), (0, 0)])
def test_host_and_device_are_joined_by_handle_or_by_order(tmp_path, handles):
    host = write_host(tmp_path / "host.json", HOST)
    device = write_profile(tmp_path / "device.json", profile(*handles))
    result = import_pytorch(host, device)
    assert result.trace.names() == ["cudaLaunchKernel", "aten::mm"] * 2
    assert result.share_joined == 1
    assert result.trace.data_deps.of(3).tolist() == [1]
    assert result.trace.integers("num_ops")[0].tolist() == [0, 128, 0, 128]
    assert result.trace.texts("dtype")[0][1] == "float32"


def test_files_of_different_steps_are_refused(tmp_path):
    host = write_host(tmp_path / "host.json", HOST)
    device = write_profile(tmp_path / "device.json", profile(901, 902))
    with pytest.raises(TraceError, match=r"launched one of the 2 kernels.*not of the same step"):
        import_pytorch(host, device)


def test_a_profile_of_the_host_gives_durations(tmp_path):
    host = write_host(tmp_path / "host.json", HOST)
    events = [event("cpu_op", "aten::mm", 0, 8, **{"Record function id": 503})]
    result = import_pytorch(host, write_profile(tmp_path / "device.json", events))
    assert result.share_joined == 0.5
    assert result.trace.integers("duration_ns")[0].tolist() == [8000, 0]


def test_a_host_trace_or_a_profile_alone_is_enough(tmp_path):
    host = write_host(tmp_path / "host.json", HOST)
    assert import_pytorch(host).trace.num_nodes == 2
    device = write_profile(tmp_path / "device.json", profile(0, 0))
    assert import_pytorch(None, device).trace.num_nodes == 4


def test_nothing_is_a_wrong_call():
    with pytest.raises(UsageError, match="nothing to import"):
        import_pytorch(None)


@pytest.mark.slow
def test_every_pytorch_file_imports_or_is_refused_with_a_reason(shared_data):
    rows = json.loads((shared_data / "traces" / "manifest.json").read_text())
    refused = []
    for row in rows:
        path = shared_data / "traces" / row["file"]
        if row["kind"] not in ("kineto", "pytorch_et") or row["raw_bytes"] > 20_000_000:
            continue
        try:
            both = (path, None) if row["kind"] == "pytorch_et" else (None, path)
            assert import_pytorch(*both).trace.num_nodes
        except TraceError as error:
            refused.append(f"{row['file']}: {error}")
    assert all("no kernel, copy or fill on a device" in reason for reason in refused), refused
