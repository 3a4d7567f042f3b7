from __future__ import annotations

import pytest

from jupyter_exec_ext.engine.kernels.inherited_environment import InheritedEnvironment


@pytest.fixture(autouse=True)
def a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_TEST", "old")
    monkeypatch.setenv("SECRET_TEST", "secret")


def test_what_the_names_let_through_is_chosen() -> None:
    assert InheritedEnvironment().get(["LC_T*", "NONE"]) == {"LC_TEST": "old"}


def test_it_is_chosen_again_only_when_there_is_something_else_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    inherited = InheritedEnvironment()
    chosen = inherited.get(["LC_T*"])
    assert inherited.get(["LC_T*"]) is chosen
    monkeypatch.setenv("LC_TEST", "new")
    assert inherited.get(["LC_T*"]) == {"LC_TEST": "new"}
    monkeypatch.setenv("LC_TESTED", "too")
    assert inherited.get(["LC_T*"]) == {"LC_TEST": "new", "LC_TESTED": "too"}
    monkeypatch.delenv("LC_TEST")
    assert inherited.get(["LC_T*"]) == {"LC_TESTED": "too"}
    names = ["LC_T*"]
    inherited.get(names)
    names.append("SECRET_*")
    assert inherited.get(names) == {"LC_TESTED": "too", "SECRET_TEST": "secret"}


def test_an_environment_that_shows_nothing_of_how_it_is_kept_is_looked_through_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.environ", {"LC_TEST": "old"})
    inherited = InheritedEnvironment()
    assert inherited.get(["LC_T*"]) == {"LC_TEST": "old"}
    monkeypatch.setattr("os.environ", {"LC_TEST": "new"})
    assert inherited.get(["LC_T*"]) == {"LC_TEST": "new"}
