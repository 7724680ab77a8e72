"""The columns of samples as a table are a contract with whoever reads them."""

import pytest

from layerdag.training.checkpoint import checkpoint_schema, load_checkpoint, pretrained_checkpoint

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")

COLUMNS = {
    "name": "string",
    "seed": "int64",
    "truncated": "bool",
    "ranks": "int32",
    "conditions": {
        "label": "double", "num_nodes": "double", "num_layers": "double", "family": "string",
        "strategy": "string", "phase": "string", "world_size": "string",
    },
    "nodes": [{
        "op": "string", "type": "string", "collective": "string", "group": "string",
        "stage": "string", "peer": "string", "device": "string", "dtype": "string",
        "flops": "double", "bytes": "double", "comm_bytes": "double", "duration": "double",
    }],
    "edges": [{"source": "int32", "target": "int32", "type": "string"}],
}  # fmt: skip


def plain(kind: "pa.DataType") -> object:
    """Return a type as plain Python."""
    if pa.types.is_struct(kind):
        return {field.name: plain(field.type) for field in kind}
    if pa.types.is_list(kind):
        return [plain(kind.value_type)]
    return str(kind)


def test_jobs_of_the_shipped_checkpoint_have_these_columns():
    from layerdag.samples.table import table_schema

    schema = table_schema(checkpoint_schema(load_checkpoint(pretrained_checkpoint())))
    assert {field.name: plain(field.type) for field in schema} == COLUMNS
    assert set(schema.metadata) == {b"format", b"edge_types", b"units"}
    assert schema.metadata[b"format"] == b"layerdag-table-1"
