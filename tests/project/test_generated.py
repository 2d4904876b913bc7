"""The checked-in protobuf modules are what protoc makes of the .proto files today."""

import importlib.resources
from pathlib import Path

import pytest
from grpc_tools import protoc

ROOT = Path(__file__).parents[2]
PROTOS = sorted((ROOT / "protos").rglob("*.proto"))


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory):
    out = tmp_path_factory.mktemp("proto")
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    files = [str(path.relative_to(ROOT / "protos")) for path in PROTOS]
    arguments = ["protoc", f"-I{ROOT / 'protos'}", f"-I{well_known}", f"--python_out={out}", f"--pyi_out={out}"]
    assert protoc.main([*arguments, *files]) == 0
    return out


@pytest.mark.parametrize("proto", PROTOS, ids=lambda path: path.stem)
@pytest.mark.parametrize("suffix", ["_pb2.py", "_pb2.pyi"])
def test_generated_code_is_fresh(regenerated, proto, suffix):
    relative = proto.relative_to(ROOT / "protos").with_name(proto.stem + suffix)
    assert (ROOT / relative).read_text() == (regenerated / relative).read_text()
