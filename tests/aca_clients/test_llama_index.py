"""llama-index-tools-azure-code-interpreter's tools."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests
from llama_index.tools.azure_code_interpreter import AzureCodeInterpreterToolSpec

PICTURE_CODE = """
import base64
from IPython.display import Image
Image(base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
))
"""


@pytest.fixture
def tools(endpoint: str) -> AzureCodeInterpreterToolSpec:
    return AzureCodeInterpreterToolSpec(pool_management_endpoint=endpoint)


def test_an_agents_tools_run_code_in_one_session(tools: AzureCodeInterpreterToolSpec) -> None:
    run, listed = tools.to_tool_list()
    first = run.call(python_code="kept = 6\nprint('out')\nkept * 7").raw_output["properties"]
    assert (first["status"], first["stdout"], first["stderr"], first["result"]) == ("Success", "out\n", "", 42)
    assert run.call(python_code="kept").raw_output["properties"]["result"] == 6
    assert listed.call().raw_output == []


def test_an_error_is_a_result(tools: AzureCodeInterpreterToolSpec) -> None:
    properties = tools.code_interpreter("1 / 0")["properties"]
    assert properties["status"] == "Failure"
    assert "ZeroDivisionError: division by zero" in properties["stderr"]


def test_a_picture_is_saved(endpoint: str, tmp_path: Path) -> None:
    tools = AzureCodeInterpreterToolSpec(pool_management_endpoint=endpoint, local_save_path=str(tmp_path))
    result = tools.code_interpreter(PICTURE_CODE)["properties"]["result"]
    assert result == {"type": "image", "format": "png", "saved_to_local_path": True}
    (saved,) = tmp_path.iterdir()
    assert saved.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["data.bin", "with a space.bin", "größe.bin"])
def test_files_go_there_and_back(tools: AzureCodeInterpreterToolSpec, tmp_path: Path, name: str) -> None:
    """It uploads them as ``/mnt/data/NAME``."""
    content = bytes(range(256)) * 5
    (tmp_path / name).write_bytes(content)
    (uploaded,) = tools.upload_file(local_file_path=str(tmp_path / name))
    assert (uploaded.filename, uploaded.file_full_path) == (name, f"/mnt/data/{name}")
    assert [(file.filename, file.size_in_bytes) for file in tools.list_files()] == [(name, len(content))]
    assert tools.code_interpreter(f"len(open({name!r}, 'rb').read())")["properties"]["result"] == len(content)
    back = tools.download_file_to_local(f"/mnt/data/{name}")
    assert back is not None
    assert back.read() == content


def test_a_missing_file_is_not_found(tools: AzureCodeInterpreterToolSpec) -> None:
    with pytest.raises(requests.HTTPError, match="404"):
        tools.download_file_to_local("missing.bin")


def test_identifiers_arrive_whole(endpoint: str) -> None:
    first, second = (AzureCodeInterpreterToolSpec(endpoint, session_id=f"llama#{n}") for n in range(2))
    first.code_interpreter("kept = 5")
    assert second.code_interpreter("kept")["properties"]["status"] == "Failure"
    assert first.code_interpreter("kept")["properties"]["result"] == 5
