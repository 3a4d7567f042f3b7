from __future__ import annotations

import nbformat
import pytest

from jupyter_exec_ext.models import Approval, Decision, Execution, ExecutionState
from jupyter_exec_ext.protocol.notebook_format import cells_of

SENT = "x = 1\u2028# </script>\n\n```\n![](http://127.0.0.1:1/x.png)"


def execution(approval: Approval | None) -> Execution:
    return Execution("exe_1", "ses_1", ExecutionState.OK, "print(2)", "2026-01-01T00:00:00.000Z", approval=approval)


def edited(by: str) -> Execution:
    return execution(Approval("why", "", Decision.EDITED, decided_by=by, original_code=SENT))


def test_code_of_an_agent_is_one_cell() -> None:
    for approval in (None, Approval("why", "", Decision.APPROVED, decided_by="ann")):
        (cell,) = cells_of(execution(approval), "python")
        assert (cell["cell_type"], cell["source"]) == ("code", "print(2)")


def test_edited_code_comes_after_a_note_with_the_original() -> None:
    note, cell = cells_of(edited("ann"), "python")
    assert (note["cell_type"], cell["source"]) == ("markdown", "print(2)")
    assert note["source"].startswith("ann edited the code below before it ran.")
    assert note["source"].endswith("    x = 1\n    # </script>\n    \n    ```\n    ![](http://127.0.0.1:1/x.png)")
    assert cell["metadata"]["jupyter_exec_ext"]["edited_by"] == "ann"
    nbformat.validate({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [note, cell]})


@pytest.mark.parametrize("by", ["<img src=x>", "# a\n\n- b", "![](x)", "[a](javascript:1)", "**b**"])
def test_name_of_the_person_does_not_act_in_markdown(by: str) -> None:
    first = cells_of(edited(by), "python")[0]["source"].partition(" edited the code")[0]
    assert "\n" not in first
    for at, character in enumerate(first):
        if character in "<>#!*[]()-":
            assert first[at - 1] == "\\"
