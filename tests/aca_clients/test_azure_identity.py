"""azure-identity's own credentials, with our clients, our executor and our kernels."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import azure.identity
import azure.identity.aio
import pytest
from jupyter_client.manager import AsyncKernelManager

from jupyter_exec_ext import ACAClient, ACADynamicSessionsCodeExecutor, AsyncACAClient, CodeBlock
from jupyter_exec_ext.errors import ExecError, Unauthenticated

from .identity import Identity, serving

RESOURCE = "https://dynamicsessions.io"
NAMES = ["DefaultAzureCredential", "ManagedIdentityCredential"]
SHORT_SECONDS = 2


@pytest.fixture(autouse=True)
def identity(endpoint: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Identity]:
    """Give this process an identity, as App Service does; nothing of it may be in the most talkative log."""
    caplog.set_level(logging.DEBUG)
    identity = Identity(endpoint)
    with serving(identity) as address:
        monkeypatch.setenv("IDENTITY_ENDPOINT", address)
        monkeypatch.setenv("IDENTITY_HEADER", identity.secret)
        yield identity
    assert not [secret for secret in [identity.secret, *identity.given] if secret in caplog.text]


@pytest.mark.parametrize("name", NAMES)
def test_a_blocking_client_gets_its_token_from_it(endpoint: str, identity: Identity, name: str) -> None:
    with getattr(azure.identity, name)() as credential, ACAClient(endpoint, credential) as pool:
        assert [pool.run(f"blocking-{name}", f"{n} * 7").value for n in range(3)] == [0, 7, 14]
        assert not [token for token in identity.given if token in repr(pool)]
        pool.delete_session(f"blocking-{name}")
    assert identity.resources == [RESOURCE]


@pytest.mark.parametrize("module", [azure.identity, azure.identity.aio])
@pytest.mark.parametrize("name", NAMES)
async def test_an_asynchronous_client_takes_both_kinds(
    endpoint: str, identity: Identity, module: Any, name: str
) -> None:
    credential = getattr(module, name)()
    session = f"{module.__name__}-{name}"
    async with AsyncACAClient(endpoint, credential) as pool:
        assert [(await pool.run(session, f"{n} * 7")).value for n in range(3)] == [0, 7, 14]
        assert not [token for token in identity.given if token in repr(pool)]
        await pool.delete_session(session)
    assert identity.resources == [RESOURCE]
    if module is azure.identity.aio:
        await credential.close()


@pytest.mark.parametrize("module", [azure.identity, azure.identity.aio])
async def test_the_executor_takes_both_kinds(endpoint: str, identity: Identity, tmp_path: Path, module: Any) -> None:
    credential = module.DefaultAzureCredential()
    async with ACADynamicSessionsCodeExecutor(endpoint, credential, work_dir=tmp_path) as executor:
        result = await executor.execute_code_blocks([CodeBlock("print(6 * 7)", "python")])
        assert (result.exit_code, result.output.strip()) == (0, "42")
        assert not [token for token in identity.given if token in repr(executor)]
    assert identity.resources == [RESOURCE]
    if module is azure.identity.aio:
        await credential.close()


def test_tokens_that_end_are_replaced_before_a_call_fails(endpoint: str, identity: Identity) -> None:
    identity.life_seconds = SHORT_SECONDS
    with azure.identity.DefaultAzureCredential() as credential, ACAClient(endpoint, credential) as pool:
        pool.run("ending", "x = 0")
        give_up_at = time.monotonic() + 60
        runs = 0
        while len(identity.given) < 4:
            assert pool.run("ending", "x += 1\nx").value == (runs := runs + 1)
            assert time.monotonic() < give_up_at
        pool.delete_session("ending")


async def test_so_they_are_for_an_asynchronous_client(endpoint: str, identity: Identity) -> None:
    identity.life_seconds = SHORT_SECONDS
    async with (
        azure.identity.aio.DefaultAzureCredential() as credential,
        AsyncACAClient(endpoint, credential) as pool,
    ):
        await pool.run("ending", "x = 0")
        give_up_at = time.monotonic() + 60
        runs = 0
        while len(identity.given) < 4:
            assert (await pool.run("ending", "x += 1\nx")).value == (runs := runs + 1)
            assert time.monotonic() < give_up_at
        await pool.delete_session("ending")


def test_a_token_that_is_refused_before_its_end_is_told(endpoint: str, identity: Identity) -> None:
    """azure-identity gives out the same one until then, unless the service names claims."""
    with azure.identity.ManagedIdentityCredential() as credential, ACAClient(endpoint, credential) as pool:
        pool.run("refused", "1")
        identity.revoke()
        with pytest.raises(Unauthenticated):
            pool.run("refused", "1")
    assert len(identity.given) == 1


def test_a_login_of_the_command_line_will_do(
    endpoint: str, identity: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = identity.give(RESOURCE)
    answer = {"accessToken": token["access_token"], "expires_on": int(token["expires_on"]), "tokenType": "Bearer"}
    program = tmp_path / "az"
    program.write_text(f"#!{sys.executable}\nprint('''{json.dumps(answer)}''')\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with azure.identity.AzureCliCredential() as credential, ACAClient(endpoint, credential) as pool:
        assert pool.run("login", "6 * 7").value == 42
        pool.delete_session("login")


def test_where_there_is_no_identity_nothing_is_sent(endpoint: str) -> None:
    with azure.identity.EnvironmentCredential() as credential, ACAClient(endpoint, credential) as pool:
        with pytest.raises(ExecError, match="EnvironmentCredential gave no access token") as raised:
            pool.run("nobody", "1")
        assert type(raised.value.__cause__).__name__ == "CredentialUnavailableError"


# --- kernels ---


async def outputs_of(manager: AsyncKernelManager, code: str) -> list[dict[str, Any]]:
    """Return what comes of code in a kernel."""
    outputs: list[dict[str, Any]] = []

    def keep(message: dict[str, Any]) -> None:
        if message["msg_type"] not in ("status", "execute_input"):
            outputs.append(message["content"])

    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        await client.execute_interactive(code, allow_stdin=False, output_hook=keep, timeout=60)
    finally:
        client.stop_channels()
    return outputs


async def test_a_kernel_gets_its_token_from_it_and_its_code_nothing(
    endpoint: str, identity: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    directory = tmp_path / "kernels" / "aca"
    directory.mkdir(parents=True)
    stanza = {"provisioner_name": "aca-provisioner", "config": {"endpoint": endpoint, "credential": "azure"}}
    spec = {"argv": [], "display_name": "aca", "language": "python", "metadata": {"kernel_provisioner": stanza}}
    (directory / "kernel.json").write_text(json.dumps(spec))
    manager = AsyncKernelManager(kernel_name="aca")
    await manager.start_kernel()
    try:
        (environment,) = await outputs_of(manager, "import os; ' '.join(os.environ.values())")
        (value,) = await outputs_of(manager, "6 * 7")
    finally:
        await manager.shutdown_kernel(now=True)
    assert value["data"]["text/plain"] == "42"
    assert not [secret for secret in [identity.secret, *identity.given] if secret in str(environment)]
    assert identity.resources == [RESOURCE]
