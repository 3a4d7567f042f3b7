"""Every kind of value that a session answers with, in both families: to our clients and executor, and as a kernel."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jupyter_exec_ext import ACADynamicSessionsCodeExecutor, CodeBlock
from jupyter_exec_ext.aca.client.aio.pool_client import AsyncACAClient
from jupyter_exec_ext.aca.client.sync.pool_client import ACAClient
from jupyter_exec_ext.aca.protocol.addresses import Family
from jupyter_exec_ext.client import ExecClient
from tests.support.aca_pool import HOSTS_OF_SESSIONS, VERSIONS, credential_of, endpoint_of
from tests.support.blocking_client import LoopThread
from tests.support.hosts import Host

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PICTURE = {"type": "image", "format": "png", "base64_data": base64.b64encode(PNG).decode()}


class Kind(NamedTuple):
    """A piece of code, what its value is on the wire, and what a notebook shows of it."""

    code: str
    value: Any
    shown: dict[str, str] | None


def plain(text: str) -> dict[str, str]:
    return {"text/plain": text}


KINDS = {
    "a statement": Kind("x = 1", "", None),
    "nothing": Kind("", "", None),
    "a print": Kind("print(1)", "", None),
    "None": Kind("None", "", None),
    "an int": Kind("2", 2, plain("2")),
    "a negative int": Kind("-3", -3, plain("-3")),
    "a long int": Kind("10**30", 10**30, plain(f"1{'0' * 30}")),
    "a float": Kind("2.5", 2.5, plain("2.5")),
    "a whole float": Kind("5.0", 5.0, plain("5.0")),
    "a large float": Kind("1e22", 1e22, plain("1e+22")),
    "true": Kind("1 == 1", True, plain("True")),
    "false": Kind("1 == 2", False, plain("False")),
    "not a number": Kind("float('nan')", None, plain("nan")),
    "infinity": Kind("float('inf')", None, plain("inf")),
    "a string": Kind("'text'", "text", plain("'text'")),
    "an empty string": Kind("''", "", plain("''")),
    "a string with lines": Kind("'a\\nb \"ü\"'", 'a\nb "ü"', plain("'a\\nb \"ü\"'")),
    "a string like a number": Kind("'5'", "5", plain("'5'")),
    "a string like no number": Kind("'nan'", "nan", plain("'nan'")),
    "bytes": Kind("b'x'", "b'x'", plain("b'x'")),
    "a list": Kind("[1, 'a', None]", "[1, 'a', None]", plain("[1, 'a', None]")),
    "a dict": Kind("{'a': 1}", "{'a': 1}", plain("{'a': 1}")),
    "a tuple": Kind("(1,)", "(1,)", plain("(1,)")),
    "a complex number": Kind("1+2j", "(1+2j)", plain("(1+2j)")),
    "a long list": Kind("list(range(1001))", None, None),
    "an object": Kind("import pathlib; pathlib.Path('a')", "PosixPath('a')", plain("PosixPath('a')")),
    "a picture": Kind(f"from IPython.display import Image; Image({PNG!r})", PICTURE, None),
    "a picture that is displayed": Kind(
        f"from IPython.display import Image, display; display(Image({PNG!r}))", PICTURE, None
    ),
}
# Their notebook form has more than the wire's value has: it is compared piece by piece.
LONG = "a long list"
PICTURES = ("a picture", "a picture that is displayed")


@pytest.fixture(scope="module", params=list(Family))
def family(request: pytest.FixtureRequest) -> Family:
    return Family(request.param)


@pytest.fixture(scope="module")
def pool(hosts: Any) -> Host:
    """A server as a session pool."""
    started: Host = hosts["pool"]
    return started


@pytest.fixture(scope="module", params=["sync", "async"])
def run(request: pytest.FixtureRequest, pool: Host, family: Family) -> Iterator[Any]:
    """Run code in a session by each of our clients."""
    arguments: Any = (endpoint_of(pool), credential_of(pool))
    identifier = f"values-{request.param}-{family}"
    if request.param == "sync":
        with ACAClient(*arguments, api_version=VERSIONS[family]) as client:
            yield lambda code: client.run(identifier, code)
            client.delete_session(identifier)
        return
    loop = LoopThread()

    async def make() -> AsyncACAClient:
        return AsyncACAClient(*arguments, api_version=VERSIONS[family])

    client = loop.run(make())
    yield lambda code: loop.run(client.run(identifier, code))
    loop.run(client.delete_session(identifier))
    loop.run(client.aclose())
    loop.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_gets_every_kind(run: Any, kind: str) -> None:
    code, value, _ = KINDS[kind]
    result = run(code)
    assert result.ok, result.stderr
    if kind == LONG:  # as IPython shows it, in lines
        assert isinstance(result.value, str)
        assert result.value.split(",\n ")[:3] == ["[0", "1", "2"]
        assert result.value.endswith("...]")
        return
    assert (type(result.value), result.value) == (type(value), value)
    assert result.image == (("image/png", PNG) if kind in PICTURES else None)
    assert result.stdout == ("1\n" if kind == "a print" else "")


def test_a_client_gets_the_error_that_the_code_ends_with(run: Any) -> None:
    result = run("print('before')\n1/0")
    assert (result.ok, result.stdout, result.value) == (False, "before\n", "")
    assert result.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "\x1b" not in result.stderr


@pytest.fixture(scope="module")
def notebook(hosts: Any, family: Family) -> Iterator[Any]:
    """A session of the engine whose kernel is a session of the pool."""
    name = next(name for name, spoken in HOSTS_OF_SESSIONS.items() if spoken is family)
    with ExecClient(hosts[name].info) as client, client.session() as session:
        yield session


@pytest.mark.parametrize("kind", KINDS)
def test_a_kernel_shows_every_kind_as_a_local_one_does(notebook: Any, kind: str) -> None:
    code, _, shown = KINDS[kind]
    result = notebook.run(code)
    assert result.ok
    outputs = [output for output in result.outputs if output["output_type"] != "stream"]
    if kind in PICTURES:
        (output,) = outputs
        assert base64.b64decode(output["data"]["image/png"]) == PNG
        assert output["output_type"] == ("execute_result" if kind == "a picture" else "display_data")
    elif kind == LONG:
        assert outputs[0]["data"]["text/plain"].endswith("...]")
    else:
        assert [output["data"] for output in outputs] == ([] if shown is None else [shown])


async def test_the_executor_gives_every_kind_as_text_or_as_a_file(pool: Host, family: Family, tmp_path: Path) -> None:
    executor = ACADynamicSessionsCodeExecutor(
        endpoint_of(pool), credential_of(pool), work_dir=tmp_path, api_version=VERSIONS[family]
    )
    try:
        for kind, (code, value, _) in KINDS.items():
            result: Any = await executor.execute_code_blocks([CodeBlock(code=code, language="python")])
            assert result.exit_code == 0, kind
            if kind in PICTURES:
                (path,) = result.output_files
                assert Path(path).read_bytes() == PNG, kind
                continue
            assert result.output_files == [], kind
            if kind == LONG:
                assert result.output.startswith("[0,\n 1,"), kind
            elif kind == "a print":
                assert result.output.strip() == "1"
            else:  # what JSON has no number for is not told
                assert result.output == ("" if value is None else str(value)), kind
    finally:
        await executor.stop()
