"""The document's conversation as it stands there, inside AutoGen: a container runs what a model behind HTTP writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_exec_ext.executors.containers.container_engine import is_gone
from jupyter_exec_ext.executors.containers.container_image import find_or_build_default_image
from tests.adapters.chat_completions import chat_completions
from tests.executors import seed_chat
from tests.support.container_engines import running_engine


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """An engine with the default image: built over this machine's network, since no other may lead to packages."""
    with running_engine() as client:
        find_or_build_default_image(client, print, "host")
        yield client


@pytest.mark.timeout(900)
def test_the_documents_agents_solve_its_problem_in_its_container(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with chat_completions(seed_chat.REPLIES) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-nobody")
        exec(seed_chat.CODE_EXECUTOR_AGENT, names)
        server = names["server"]
        container = engine.containers.get(server._container.id)
        try:
            assert container.status == "running"
            for code in (seed_chat.CODE_WRITER_AGENT, seed_chat.CHAT):
                exec(code, names)
        finally:
            exec(seed_chat.STOP, names)
    result = names["chat_result"]
    assert result.summary.startswith("exitcode: 0 (execution succeeded)\n")
    assert result.summary.endswith(seed_chat.FIBONACCI_GIVES)
    said = [message["content"] for message in result.chat_history]
    assert said[1:4:2] == seed_chat.REPLIES
    assert result.summary == said[-1]
    assert [asked["model"] for asked in model.asked] == ["gpt-4", "gpt-4"]
    assert model.asked[0]["messages"][0]["content"] == names["code_writer_system_message"]
    assert is_gone(engine, container.id)
