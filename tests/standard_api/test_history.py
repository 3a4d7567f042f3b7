"""Selection of a session's history, compared with IPython's selection from a history of its own."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_exec_ext.standard_api.incoming_messages import limit_history_request, select_history

ITEMS = [[0, 1, "x = 1"], [0, 2, "y = 2"], [0, 3, "x = 1"], [0, 4, "print(x)"]]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ({"hist_access_type": "tail", "n": 2}, [3, 4]),
        ({"hist_access_type": "tail", "n": 0}, []),
        ({"hist_access_type": "tail", "n": -1}, []),
        ({"hist_access_type": "tail"}, [1, 2, 3, 4]),
        ({"hist_access_type": "range", "start": 2, "stop": 4}, [2, 3]),
        ({"hist_access_type": "range", "start": 3, "stop": None}, [3, 4]),
        ({"hist_access_type": "search", "pattern": "x*"}, [1, 3]),
        ({"hist_access_type": "search", "pattern": "*x*"}, [1, 3, 4]),
        ({"hist_access_type": "search", "pattern": "x = ?", "unique": True}, [3]),
        ({"hist_access_type": "search", "pattern": "*", "n": 1}, [4]),
        ({"hist_access_type": "search", "pattern": "nothing"}, []),
        ({"hist_access_type": "search", "pattern": "*" * 500 + "a" * 3000}, []),
    ],
)
def test_select_history_returns_same_items_as_ipython(content: dict[str, Any], lines: list[int]) -> None:
    assert [item[1] for item in select_history(content, ITEMS)] == lines


def test_select_history_keeps_values_beside_code() -> None:
    item = [0, 1, ["1 + 1", "2"]]
    assert select_history({"hist_access_type": "search", "pattern": "1 +*"}, [item]) == [item]


@pytest.mark.parametrize("items", [None, "x", [None, [0], [0, "1", "x"], {}]])
def test_select_history_of_malformed_reply_is_empty(items: Any) -> None:
    assert select_history({"hist_access_type": "tail", "n": 5}, items) == []


def test_limit_history_request_reads_only_own_session() -> None:
    content = {"hist_access_type": "search", "pattern": "*", "session": -1, "output": True, "raw": False}
    assert limit_history_request(content) == {
        "output": True,
        "raw": False,
        "hist_access_type": "range",
        "session": 0,
        "start": 1,
        "stop": None,
    }
