"""A session as a Jupyter notebook: its beginning, each cell, its end.

References
----------
https://nbformat.readthedocs.io/en/latest/format_description.html
"""

from __future__ import annotations

import re

from ..models import Execution, JSONObject, Session
from .languages import source_for_kernel
from .strict_json import dump_bytes

#: What follows the last cell.
NOTEBOOK_END = b"]}"


def notebook_start(session: Session, display_name: str) -> bytes:
    """Return a notebook (nbformat 4.5) up to its first cell, as JSON."""
    frame = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {
                "name": session.kernel_name,
                "display_name": display_name,
                "language": session.language,
            },
            "language_info": {"name": session.language},
            "jupyter_exec_ext": {"session_id": session.id, "name": session.name},
        },
        "cells": [],
    }
    # `cells` is the last key, so that the text can go on with cells once its end is removed.
    return dump_bytes(frame).removesuffix(NOTEBOOK_END)


def cells_of(execution: Execution, kernel_language: str) -> list[JSONObject]:
    """Return the cells of an execution: its code, after a note with the original if a person has edited it."""
    cell, approval = cell_of(execution, kernel_language), execution.approval
    if approval is None or approval.original_code is None:
        return [cell]
    # Neither a name nor code may act in Markdown: punctuation is escaped, and an indented block has no end to find.
    who = re.sub(r"([^\w\s])", r"\\\1", " ".join(approval.decided_by.split())) or "A person"
    original = "\n".join(f"    {line}" for line in approval.original_code.splitlines())
    source = f"{who} edited the code below before it ran. The agent had sent:\n\n{original}"
    cell["metadata"]["jupyter_exec_ext"]["edited_by"] = approval.decided_by
    return [{"cell_type": "markdown", "id": f"{execution.id}-note", "source": source, "metadata": {}}, cell]


def cell_of(execution: Execution, kernel_language: str) -> JSONObject:
    """Return the code cell of an execution.

    Its metadata say, under ``jupyter_exec_ext``, how the execution ended and when.
    """
    told = {
        "execution_id": execution.id,
        "state": execution.state.value,
        "started_at": execution.started_at,
        "finished_at": execution.finished_at,
        "reason": execution.reason,
    }
    return {
        "cell_type": "code",
        "id": execution.id,  # nbformat 4.5 allows 1 to 64 letters, digits, '-' and '_'
        "source": source_for_kernel(execution.code, execution.language, kernel_language),
        "execution_count": execution.execution_count,
        "outputs": [notebook_output(output) for output in execution.outputs],
        "metadata": {"jupyter_exec_ext": {name: value for name, value in told.items() if value is not None}},
    }


def notebook_output(output: JSONObject) -> JSONObject:
    """Return an output with the fields that nbformat asks for."""
    if output["output_type"] == "execute_result":
        return {"execution_count": None, **output}
    return output
