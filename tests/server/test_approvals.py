"""Code that waits for a person: approved, edited, rejected, forgotten, cancelled, cut; on both hosts."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.bearers import UNPROTECTED, Bearer, mint, owner_of
from tests.support.hosts import Host, running_host

POLICIES = {
    "asks": {"base": "trusted", "approval": {"when": ["shell", "imports"], "modules": ["socket"]}},
    "hurried": {"base": "trusted", "approval": {"when": "always", "timeout_seconds": 0.5}},
    "first": {"base": "trusted", "approval": {"when": ["first_run"]}},
    "queue": {"base": "trusted", "max_queue_seconds": 0.5},
    "uploads": {"base": "trusted", "approval": "always", "unseen_uploads": True},
}


@pytest.fixture(scope="module", params=["server", "gateway"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("approvals")
    (home / "policies.json").write_text(json.dumps(POLICIES))
    option = f"--ExecEngine.policy_file={home / 'policies.json'}"
    with running_host(request.param, home, UNPROTECTED, option) as started:
        yield started


@pytest.fixture
def agent(host: Host) -> Iterator[Bearer]:
    bearer = mint(host, policy="asks")
    yield bearer
    owner_of(host).call("DELETE", f"/tokens/{bearer.id}")


def submit(agent: Bearer, session_id: str, code: str, **headers: str) -> dict[str, Any]:
    """Send code without waiting for it."""
    answer = agent.call(
        "POST",
        f"/sessions/{session_id}/executions",
        json={"code": code},
        headers={"Prefer": "respond-async", **headers},
    )
    assert answer.status_code == 202, answer.text
    record: dict[str, Any] = answer.json()
    return record


def decide(host: Host, execution_id: str, **answer: Any) -> requests.Response:
    return owner_of(host).call("POST", f"/approvals/{execution_id}", json=answer)


def ended(agent: Bearer, execution_id: str) -> dict[str, Any]:
    record: dict[str, Any] = agent.call("GET", f"/executions/{execution_id}", headers={"Prefer": "wait=30"}).json()
    return record


def states(agent: Bearer, execution_id: str) -> list[str]:
    """Return the states that the log tells of, up to the end."""
    log = agent.call("GET", f"/executions/{execution_id}/events", headers={"Accept": "application/x-ndjson"})
    events = [json.loads(line) for line in log.text.splitlines()]
    records = [event["execution"] if event["type"] == "end" else event for event in events]
    return [record["state"] for record in records if "state" in record]


def waiting(host: Host) -> list[str]:
    return [execution["id"] for execution in owner_of(host).call("GET", "/approvals").json()["executions"]]


def test_what_the_policy_does_not_ask_about_runs(agent: Bearer) -> None:
    record = agent.run(agent.session(), "import math; 6 * 7").json()
    assert (record["state"], record["approval"]) == ("ok", None)


def test_approved_code_runs_as_it_was_sent(host: Host, agent: Bearer) -> None:
    record = submit(agent, agent.session(), "!echo hello")
    assert record["state"] == "awaiting_approval"
    assert record["approval"]["why"] == "it runs a shell command"
    assert record["approval"]["decision"] is None
    assert waiting(host) == [record["id"]]
    answer = decide(host, record["id"], decision="approve", reason="fine")
    assert (answer.status_code, answer.json()["state"]) == (200, "queued")
    done = ended(agent, record["id"])
    assert (done["state"], done["stdout"].strip(), done["code"]) == ("ok", "hello", "!echo hello")
    assert done["approval"]["decision"] == "approved"
    assert done["approval"]["reason"] == "fine"
    assert done["approval"]["decided_by"]
    assert states(agent, record["id"]) == ["awaiting_approval", "queued", "running", "ok"]
    assert waiting(host) == []


def test_edited_code_runs_and_both_versions_are_kept(host: Host, agent: Bearer) -> None:
    record = submit(agent, agent.session(), "!rm -rf .")
    decide(host, record["id"], decision="approve", code="print('no')")
    done = ended(agent, record["id"])
    assert (done["stdout"], done["code"]) == ("no\n", "print('no')")
    assert (done["approval"]["decision"], done["approval"]["original_code"]) == ("edited", "!rm -rf .")


def test_record_names_the_lines_that_ask(agent: Bearer) -> None:
    record = submit(agent, agent.session(), "import math\n!ls\nimport socket")
    shell = {"kind": "shell", "why": "it runs a shell command", "line": 2}
    assert record["approval"]["findings"] == [
        shell,
        {"kind": "import socket", "why": "it imports socket", "line": 3},
    ]
    assert record["approval"]["why"] == shell["why"]


def test_approval_for_the_session_covers_later_code_of_its_kinds_there_alone(host: Host, agent: Bearer) -> None:
    session_id = agent.session()
    record = submit(agent, session_id, "!true")
    done = decide(host, record["id"], decision="approve", for_session=True).json()
    assert done["approval"]["approved_kinds"] == ["shell"]
    assert agent.call("GET", f"/sessions/{session_id}").json()["approved_kinds"] == ["shell"]
    later = agent.run(session_id, "!echo again").json()
    assert (later["state"], later["approval"]) == ("ok", None)
    for code in ("import socket", "!true; import socket\nimport socket"):
        other = submit(agent, session_id, code)
        assert {each["kind"] for each in other["approval"]["findings"]} == {"import socket"}
        decide(host, other["id"], decision="reject")
    elsewhere = agent.session()
    assert submit(agent, elsewhere, "!true")["state"] == "awaiting_approval"
    records = owner_of(host).call("GET", f"/sessions/{session_id}/executions").json()["executions"]
    assert records[0]["approval"]["approved_kinds"] == ["shell"]


def test_approval_for_the_session_releases_code_of_its_kinds_that_waits_there_alone(host: Host, agent: Bearer) -> None:
    session_id, elsewhere = agent.session(), agent.session()
    first, same = (submit(agent, session_id, code) for code in ("!true", "!echo released"))
    other = submit(agent, session_id, "!true; import socket\nimport socket")
    foreign = submit(agent, elsewhere, "!true")
    decide(host, first["id"], decision="approve", for_session=True, reason="go on")
    assert set(waiting(host)) == {other["id"], foreign["id"]}
    done = ended(agent, same["id"])
    assert (done["state"], done["stdout"].strip()) == ("ok", "released")
    approval = done["approval"]
    assert (approval["decision"], approval["reason"], approval["approved_kinds"]) == ("approved", "", [])
    assert approval["decided_by"] == ended(agent, first["id"])["approval"]["decided_by"]
    decide(host, other["id"], decision="approve", for_session=True)
    assert ended(agent, other["id"])["state"] == "ok"
    assert waiting(host) == [foreign["id"]]


def test_first_execution_of_a_session_is_not_released_with_its_kind(host: Host) -> None:
    agent = mint(host, approval={"when": ["first_run", "shell"]})
    session_id = agent.session()
    first, second, third = (submit(agent, session_id, code) for code in ("1", "!true", "!true"))
    decide(host, second["id"], decision="approve", for_session=True)
    assert waiting(host) == [first["id"], third["id"]]
    for record in (first, third):
        decide(host, record["id"], decision="reject")
    assert ended(agent, second["id"])["state"] == "ok"


def test_withdrawn_kind_is_asked_about_again(host: Host, agent: Bearer) -> None:
    session_id = agent.session()
    for code in ("!true", "import socket"):
        decide(host, submit(agent, session_id, code)["id"], decision="approve", for_session=True)
    path, owner = f"/sessions/{session_id}/approved-kinds", owner_of(host)
    answer = owner.call("DELETE", f"{path}?kind=import%20socket")
    assert (answer.status_code, answer.json()["approved_kinds"]) == (200, ["shell"])
    assert agent.run(session_id, "!true").json()["approval"] is None
    assert submit(agent, session_id, "import socket")["state"] == "awaiting_approval"
    assert owner.call("DELETE", f"{path}?kind=unknown").json()["approved_kinds"] == ["shell"]
    assert owner.call("DELETE", path).json()["approved_kinds"] == []
    assert submit(agent, session_id, "!true")["state"] == "awaiting_approval"
    assert agent.call("DELETE", path).json()["code"] == "owner_only"
    owner.call("DELETE", f"/sessions/{session_id}")
    assert owner.call("DELETE", path).json()["code"] == "session_ended"


def test_approval_for_the_session_needs_a_kind_and_an_approval(host: Host) -> None:
    agent = mint(host, policy="first")
    record = submit(agent, agent.session(), "1")
    refused = decide(host, record["id"], decision="approve", for_session=True)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert "it is the first execution of its session" in refused.json()["message"]
    assert decide(host, record["id"], decision="reject", for_session=True).status_code == 400
    assert waiting(host) == [record["id"]]
    decide(host, record["id"], decision="reject")


def test_new_imports_ask_once_for_each_module_that_is_approved(host: Host) -> None:
    agent = mint(host, approval={"when": ["new_imports"]})
    session_id = agent.session()
    first = submit(agent, session_id, "import math")
    decide(host, first["id"], decision="approve")
    assert ended(agent, first["id"])["state"] == "ok"
    assert agent.run(session_id, "import math").json()["approval"] is None
    edited = submit(agent, session_id, "import json")
    decide(host, edited["id"], decision="approve", code="1")
    assert ended(agent, edited["id"])["state"] == "ok"
    again = submit(agent, session_id, "import json")
    assert again["state"] == "awaiting_approval"
    decide(host, again["id"], decision="reject")


def test_token_can_not_weaken_its_own_rule_nor_decide_about_its_code(host: Host) -> None:
    agent = mint(host, approval={"when": ["shell"]})
    below = mint(agent, approval="never")
    for bearer in (agent, below):
        record = submit(bearer, bearer.session(), "!true")
        assert record["state"] == "awaiting_approval"
        answer = {"decision": "approve", "for_session": True}
        assert bearer.call("POST", f"/approvals/{record['id']}", json=answer).json()["code"] == "owner_only"
        decide(host, record["id"], decision="reject")


def test_session_tells_what_it_waits_for_and_how_its_last_code_ended(host: Host, agent: Bearer) -> None:
    session_id = agent.session()

    def told() -> tuple[str | None, str | None]:
        session = agent.call("GET", f"/sessions/{session_id}").json()
        return session["waits_for"], session["last_outcome"]

    assert told() == (None, None)
    record = submit(agent, session_id, "!true")
    assert told() == ("approval", None)
    decide(host, record["id"], decision="reject")
    assert told() == (None, "rejected")
    agent.run(session_id, "{}['q5']")
    assert told() == (None, "error: KeyError")
    asking = agent.call(
        "POST",
        f"/sessions/{session_id}/executions",
        json={"code": "input('?')", "allow_input": True},
        headers={"Accept": "application/x-ndjson"},
        stream=True,
    )
    with asking:
        lines = (json.loads(line) for line in asking.iter_lines() if line)
        assert any(event["type"] == "input_request" for event in lines)
        assert told() == ("input", "error: KeyError")
        execution_id = asking.headers["Location"].rpartition("/")[2]
        agent.call("POST", f"/executions/{execution_id}/input", json={"value": "x"})
        assert ended(agent, execution_id)["state"] == "ok"
    assert told() == (None, "ok")
    agent.call("DELETE", f"/sessions/{session_id}")
    assert told() == (None, "ok")


def test_rejected_code_does_not_run_and_the_reason_is_told(host: Host, agent: Bearer) -> None:
    session_id = agent.session()
    record = submit(agent, session_id, "import socket; ran = 1")
    answer = decide(host, record["id"], decision="reject", reason="no network")
    assert answer.json()["state"] == "rejected"
    done = ended(agent, record["id"])
    assert (done["state"], done["session_state_preserved"]) == ("rejected", True)
    assert done["reason"].endswith("no network")
    assert done["approval"]["decision"] == "rejected"
    assert agent.run(session_id, "ran").json()["error"]["name"] == "NameError"
    assert states(agent, record["id"]) == ["awaiting_approval", "rejected"]


def test_code_that_nobody_looks_at_times_out(host: Host) -> None:
    agent = mint(host, policy="hurried")
    session_id = agent.session()
    record = agent.run(session_id, "1").json()
    assert (record["state"], record["approval"]["decision"]) == ("timeout", "timeout")
    assert "nobody has approved" in record["reason"]


def test_later_code_keeps_its_place_behind(host: Host, agent: Bearer) -> None:
    session_id = agent.session()
    first = submit(agent, session_id, "!true\nx = 1")
    second = submit(agent, session_id, "x + 1")
    assert second["state"] == "queued"
    assert ended_within(agent, second["id"], 0.5)["state"] == "queued"
    decide(host, first["id"], decision="approve")
    done = ended(agent, second["id"])
    assert done["outputs"][0]["data"]["text/plain"] == "2"


def ended_within(agent: Bearer, execution_id: str, seconds: float) -> dict[str, Any]:
    """Return the record when it has ended, or after a while, whichever is first."""
    wait = f"wait={max(1, round(seconds))}"
    record: dict[str, Any] = agent.call("GET", f"/executions/{execution_id}", headers={"Prefer": wait}).json()
    return record


def test_other_sessions_do_not_wait(agent: Bearer) -> None:
    submit(agent, agent.session(), "!true")
    assert agent.run(agent.session(), "1").json()["state"] == "ok"


@pytest.mark.parametrize("how", ["cancel", "restart", "delete"])
def test_what_waits_can_be_ended(host: Host, agent: Bearer, how: str) -> None:
    session_id = agent.session()
    record = submit(agent, session_id, "!true")
    if how == "cancel":
        agent.call("POST", f"/executions/{record['id']}/cancel")
    elif how == "restart":
        agent.call("POST", f"/sessions/{session_id}/restart")
    else:
        agent.call("DELETE", f"/sessions/{session_id}")
    assert ended(agent, record["id"])["state"] == "cancelled"
    answer = decide(host, record["id"], decision="approve")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_awaiting_approval")
    if how != "delete":
        assert agent.run(session_id, "1").json()["state"] == "ok"


def test_a_revoked_tokens_code_is_not_approved_any_more(host: Host) -> None:
    agent = mint(host, policy="asks")
    record = submit(agent, agent.session(), "!true")
    owner_of(host).call("DELETE", f"/tokens/{agent.id}")
    done = owner_of(host).call("GET", f"/executions/{record['id']}", headers={"Prefer": "wait=10"}).json()
    assert done["state"] == "token_revoked"
    assert record["id"] not in waiting(host)


def test_a_repeated_request_asks_once(host: Host, agent: Bearer) -> None:
    session_id = agent.session()
    first = submit(agent, session_id, "!true", **{"Idempotency-Key": "k"})
    again = submit(agent, session_id, "!true", **{"Idempotency-Key": "k"})
    assert first["id"] == again["id"]
    assert waiting(host) == [first["id"]]


def test_only_one_answer_counts(host: Host, agent: Bearer) -> None:
    record = submit(agent, agent.session(), "!true")
    answers: list[requests.Response] = []
    threads = [
        threading.Thread(
            target=lambda number=number: answers.append(
                decide(host, record["id"], decision="approve", code=f"print({number})")
            )
        )
        for number in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    accepted = [answer for answer in answers if answer.status_code == 200]
    refused = {(a.status_code, a.json()["code"]) for a in answers if a.status_code != 200}
    assert len(accepted) == 1
    assert refused == {(409, "not_awaiting_approval")}
    done = ended(agent, record["id"])
    assert done["code"] == accepted[0].json()["code"]
    assert done["stdout"].strip() == done["code"][6:-1]


def test_what_does_not_wait_cannot_be_approved(host: Host, agent: Bearer) -> None:
    session_id = agent.session()
    running = submit(agent, session_id, "input()")
    answer = decide(host, running["id"], decision="approve")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_awaiting_approval")


def test_the_first_execution_of_a_session_is_asked_about(host: Host) -> None:
    agent = mint(host, policy="first")
    session_id = agent.session()
    record = submit(agent, session_id, "1")
    assert record["state"] == "awaiting_approval"
    decide(host, record["id"], decision="approve")
    assert ended(agent, record["id"])["state"] == "ok"
    assert agent.run(session_id, "2").json()["approval"] is None


def test_the_owner_needs_no_approval(host: Host, agent: Bearer) -> None:
    session_id = agent.session()
    assert owner_of(host).run(session_id, "!true").json()["approval"] is None


def test_a_child_is_bound_by_the_rule_above_it(host: Host, agent: Bearer) -> None:
    child = mint(agent, policy="first", approval="never")
    session_id = child.session()
    record = submit(child, session_id, "1")
    assert record["approval"]["why"] == "it is the first execution of its session"
    decide(host, record["id"], decision="approve")
    ended(child, record["id"])
    assert submit(child, session_id, "!true")["state"] == "awaiting_approval"
    owner_of(host).call("DELETE", f"/sessions/{session_id}")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"decision": "maybe"},
        {"decision": "reject", "code": "1"},
        {"decision": "approve", "why": "x"},
        {"decision": "approve", "code": 1},
        {"decision": "approve", "code": "\ud800"},
    ],
)
def test_an_answer_that_is_none_decides_nothing(host: Host, agent: Bearer, body: dict[str, Any]) -> None:
    record = submit(agent, agent.session(), "!true")
    assert decide(host, record["id"], **body).status_code == 400
    assert record["id"] in waiting(host)


@pytest.mark.parametrize("language", ["bash", " SH", "shell"])
def test_code_in_another_language_is_a_shell_command_too(host: Host, agent: Bearer, language: str) -> None:
    session_id = agent.session()
    body = {"code": "touch it", "language": language}
    sent = agent.call(
        "POST", f"/sessions/{session_id}/executions", json=body, headers={"Prefer": "respond-async"}
    ).json()
    assert sent["state"] == "awaiting_approval"
    assert decide(host, sent["id"], decision="approve").status_code == 200
    assert ended(agent, sent["id"])["state"] == "ok"


def test_code_whose_turn_does_not_come_times_out(host: Host) -> None:
    agent = mint(host, policy="queue")
    session_id = agent.session()
    long = submit(agent, session_id, "import time; time.sleep(60)")
    record = ended(agent, submit(agent, session_id, "1")["id"])
    assert (record["state"], record["session_state_preserved"]) == ("timeout", True)
    assert "max_queue_seconds" in record["reason"]
    agent.call("POST", f"/executions/{long['id']}/cancel")
    assert agent.run(session_id, "1").json()["state"] == "ok"


def test_a_killed_server_leaves_nothing_that_waits(tmp_path: Path) -> None:
    """What was approved before is on record, with the code that was approved."""
    (tmp_path / "policies.json").write_text(json.dumps(POLICIES))
    options = [UNPROTECTED, f"--ExecEngine.policy_file={tmp_path / 'policies.json'}"]
    with running_host("server", tmp_path, *options) as host:
        agent = mint(host, policy="asks")
        session_id = agent.session()
        edited = submit(agent, session_id, "!true")
        decide(host, edited["id"], decision="approve", code="import time; time.sleep(60)")
        waits = submit(agent, session_id, "!false")
        os.kill(host.process.pid, signal.SIGKILL)
        host.process.wait(10)
    with running_host("server", tmp_path, *options) as host:
        again = Bearer(host, agent.token, agent.id)
        records = [again.call("GET", f"/executions/{record['id']}").json() for record in (edited, waits)]
        assert [record["state"] for record in records] == ["server_restarted", "server_restarted"]
        assert records[0]["code"] == "import time; time.sleep(60)"
        assert records[0]["approval"]["original_code"] == "!true"
        assert waiting(host) == []


def test_what_was_approved_in_time_may_wait_for_its_turn_longer(tmp_path: Path) -> None:
    """The time that a person has is no time that the code has."""
    policies = {"brief": {"base": "trusted", "approval": {"when": ["shell"], "timeout_seconds": 1}}}
    with running_host("server", tmp_path, UNPROTECTED, f"--ExecEngine.policies={policies}") as host:
        agent = mint(host, policy="brief")
        session_id = agent.session()
        first = submit(agent, session_id, "import time; time.sleep(1.5)")
        second = submit(agent, session_id, "!true\nimport time; time.sleep(1); print('done')")
        decide(host, second["id"], decision="approve")
        done = ended(agent, second["id"])
        assert (done["state"], done["stdout"]) == ("ok", "done\n")
        assert done["approval"]["decision"] == "approved"
        assert ended(agent, first["id"])["state"] == "ok"


def test_files_that_nobody_has_seen_are_not_taken(host: Host, agent: Bearer) -> None:
    """A kernel would import them, its own modules included when it starts."""
    session_id = agent.session()
    refused = agent.call("PUT", f"/sessions/{session_id}/files/ipykernel_launcher.py", data=b"evil = 1")
    assert (refused.status_code, refused.json()["code"]) == (403, "policy_denied")
    assert refused.json()["limit"] == {"policy": "asks", "name": "unseen_uploads", "value": False}
    assert owner_of(host).call("GET", f"/sessions/{session_id}/files").json()["files"] == []
    trusting = mint(host, policy="uploads")
    session_id = trusting.session()
    assert trusting.call("PUT", f"/sessions/{session_id}/files/data.csv", data=b"1").status_code == 201
    owner_of(host).call("DELETE", f"/tokens/{trusting.id}")
