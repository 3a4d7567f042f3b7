"""What comes back: text, values, rich output and errors, the same from every host through every client."""

from __future__ import annotations

import base64
import textwrap
from typing import Any

import pytest

from jupyter_exec_ext.models import ExecutionState
from tests.support.hosts import MAX_OUTPUT_BYTES


def run(session: Any, code: str, **options: Any) -> Any:
    return session.run(textwrap.dedent(code), **options)


def data_of(output: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = output["data"]
    return found


# --- state ---


def test_state_is_kept_between_runs(session: Any) -> None:
    assert run(session, "kept = 41").ok
    assert run(session, "kept += 1; print(kept)").stdout == "42\n"


def test_imports_and_definitions_are_kept(session: Any) -> None:
    run(session, "import math\ndef area(r):\n    return math.floor(math.pi * r * r)")
    assert data_of(run(session, "area(10)").outputs[0]) == {"text/plain": "314"}


def test_an_error_keeps_the_state(session: Any) -> None:
    run(session, "survivor = 'here'")
    assert run(session, "1 / 0").state is ExecutionState.ERROR
    assert run(session, "print(survivor)").stdout == "here\n"


def test_a_syntax_error_keeps_the_state(session: Any) -> None:
    run(session, "before = 1")
    result = run(session, "def broken(:")
    assert (result.state, result.error.name) == (ExecutionState.ERROR, "SyntaxError")
    assert run(session, "before").ok


def test_two_sessions_share_nothing(client: Any, session: Any) -> None:
    run(session, "mine = 1")
    with client.session() as other:
        assert run(other, "mine").error.name == "NameError"
        assert other.id != session.id


# --- values and text ---


def test_the_last_expression_is_the_result(session: Any) -> None:
    result = run(session, "x = 5\nx * 2")
    assert result.outputs == [
        {
            "output_type": "execute_result",
            "data": {"text/plain": "10"},
            "metadata": {},
            "execution_count": result.execution_count,
        }
    ]
    assert result.error is None
    assert result.session_state_preserved is True


@pytest.mark.parametrize("code", ["", "# a comment", "x = 1", "None", "5;"])
def test_what_has_no_value_has_no_output(session: Any, code: str) -> None:
    result = run(session, code)
    assert (result.state, list(result.outputs), result.stdout) == (ExecutionState.OK, [], "")


def test_the_execution_count_goes_up_by_one(session: Any) -> None:
    first, second = run(session, "1"), run(session, "2")
    assert second.execution_count == first.execution_count + 1


def test_streams_are_kept_apart_and_in_order(session: Any) -> None:
    result = run(
        session,
        """
        import sys
        for i in range(3):
            print("out", i, flush=True)
            print("err", i, file=sys.stderr, flush=True)
        """,
    )
    assert result.stdout == "out 0\nout 1\nout 2\n"
    assert result.stderr == "err 0\nerr 1\nerr 2\n"
    assert [o["name"] for o in result.outputs] == ["stdout", "stderr"] * 3


def test_pieces_of_a_line_are_joined_exactly(session: Any) -> None:
    code = "import sys\nfor c in 'abc': sys.stdout.write(c); sys.stdout.flush()"
    assert run(session, code).stdout == "abc"


@pytest.mark.parametrize(
    "text",
    ["grüße 你好 мир", "👩‍🔬🏳️‍🌈", "a\tb\rc\x0bd", "\x00\x01\x7f", "\u2028\u2029", "\u202ertl", "\x1b[31mred\x1b[0m"],
    ids=["words", "emoji", "blanks", "control", "separators", "bidi", "ansi"],
)
def test_text_arrives_as_it_was_printed(session: Any, text: str) -> None:
    assert run(session, f"print({text!r}, end='')").stdout == text


def test_non_ascii_source_runs(session: Any) -> None:
    assert run(session, "größe = '你好'; print(größe)").stdout == "你好\n"


def test_bytes_that_are_not_utf_8_are_kept(session: Any) -> None:
    """As Python shows the name of a file that was written on another system."""
    assert run(session, r"print('caf\udce9')").stdout == "caf\udce9\n"
    assert run(session, "print('still here')").stdout == "still here\n"


def test_five_megabytes_arrive_whole(session: Any) -> None:
    result = run(session, "print('x' * 5_000_000, end='')")
    assert len(result.stdout) == 5_000_000
    assert result.truncated is None


def test_many_small_prints_arrive_whole(session: Any) -> None:
    result = run(session, "for i in range(5000): print(i)")
    assert result.stdout == "".join(f"{i}\n" for i in range(5000))


def test_beyond_the_cap_head_and_tail_are_kept_and_the_rest_is_counted(session: Any) -> None:
    lines = MAX_OUTPUT_BYTES * 3 // 2 // 100
    result = run(session, f"for i in range({lines}): print(f'{{i:099d}}')")
    assert result.stdout.startswith(f"{0:099d}\n")
    assert result.stdout.endswith(f"{lines - 1:099d}\n")
    assert "bytes of stdout left out" in result.stdout
    marker = next(line for line in result.stdout.splitlines() if "left out" in line)
    kept = len(result.stdout) - len(f"\n{marker}\n")
    assert kept + result.truncated.stdout_bytes == lines * 100
    assert kept <= MAX_OUTPUT_BYTES
    assert result.truncated.max_output_bytes == MAX_OUTPUT_BYTES


def test_a_megabyte_of_code_runs(session: Any) -> None:
    filler = "# " + "x" * 98 + "\n"
    assert run(session, filler * 10_000 + "print('end')").stdout == "end\n"


def test_quotes_and_backslashes_are_not_touched(session: Any) -> None:
    text = """a'b"c\\d{e}%s$f`g`"""
    assert run(session, f"print({text!r})").stdout == text + "\n"


# --- rich output ---


def test_every_mime_type_of_a_bundle_is_kept(session: Any) -> None:
    result = run(
        session,
        """
        from IPython.display import display
        display({"text/plain": "plain", "text/html": "<b>x</b>", "text/markdown": "*x*", "text/latex": "$x$",
                 "application/json": {"a": [1, None, 2.5]}, "image/svg+xml": "<svg/>",
                 "application/vnd.test+json": {"k": "v"}}, raw=True, metadata={"m": 1})
        """,
    )
    (output,) = result.outputs
    assert output["output_type"] == "display_data"
    assert output["metadata"] == {"m": 1}
    assert output["data"] == {
        "text/plain": "plain",
        "text/html": "<b>x</b>",
        "text/markdown": "*x*",
        "text/latex": "$x$",
        "application/json": {"a": [1, None, 2.5]},
        "image/svg+xml": "<svg/>",
        "application/vnd.test+json": {"k": "v"},
    }


def test_an_image_arrives_byte_for_byte(session: Any) -> None:
    picture = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    code = f"from IPython.display import Image, display\ndisplay(Image({picture!r}))"
    (output,) = run(session, code).outputs
    assert base64.b64decode(data_of(output)["image/png"]) == picture


def test_an_object_shows_itself_as_html_and_text(session: Any) -> None:
    result = run(
        session,
        """
        class Table:
            def _repr_html_(self): return "<table></table>"
            def __repr__(self): return "Table()"
        Table()
        """,
    )
    assert data_of(result.outputs[0]) == {"text/plain": "Table()", "text/html": "<table></table>"}


def test_an_updated_display_is_shown_once_as_it_ended(session: Any) -> None:
    result = run(
        session,
        """
        handle = display("first", display_id=True)
        print("between")
        handle.update("second")
        handle.update("third")
        """,
    )
    assert [o["output_type"] for o in result.outputs] == ["display_data", "stream"]
    assert data_of(result.outputs[0]) == {"text/plain": "'third'"}


def test_a_display_of_an_earlier_run_can_be_updated(session: Any) -> None:
    run(session, "earlier = display(1, display_id=True)")
    result = run(session, "earlier.update(2)")
    assert data_of(result.outputs[0]) == {"text/plain": "2"}


def test_cleared_output_is_gone(session: Any) -> None:
    result = run(
        session,
        """
        from IPython.display import clear_output
        print("gone", flush=True)
        clear_output()
        print("kept")
        """,
    )
    assert result.stdout == "kept\n"


def test_output_cleared_with_wait_stays_until_the_next_output(session: Any) -> None:
    result = run(
        session,
        """
        from IPython.display import clear_output
        for i in range(3):
            clear_output(wait=True)
            print("step", i, flush=True)
        clear_output(wait=True)
        """,
    )
    assert result.stdout == "step 2\n"


def test_the_pagers_text_is_not_lost(session: Any) -> None:
    result = run(session, "len?")
    assert any("Return the number of items" in str(data_of(o).get("text/plain")) for o in result.outputs)


# --- languages ---


def test_magics_work(session: Any) -> None:
    assert run(session, "%env EXEC_MAGIC=1\nimport os; print(os.environ['EXEC_MAGIC'])").stdout.endswith("1\n")


@pytest.mark.parametrize("language", ["bash", "sh", "shell"])
def test_shell_code_runs_in_a_python_session(session: Any, language: str) -> None:
    assert run(session, "for i in 1 2; do echo line $i; done", language=language).stdout == "line 1\nline 2\n"


def test_a_failing_shell_script_is_an_error(session: Any) -> None:
    result = run(session, "echo before\nexit 3", language="bash")
    assert (result.state, result.error.name) == (ExecutionState.ERROR, "CalledProcessError")
    assert result.stdout == "before\n"


@pytest.mark.parametrize("language", ["python", "Python", "py", "python3", "ipython"])
def test_python_goes_by_many_names(session: Any, language: str) -> None:
    assert run(session, "print(1)", language=language).stdout == "1\n"


# --- errors ---


def test_an_error_has_name_value_and_a_plain_traceback(session: Any) -> None:
    result = run(session, "def inner():\n    raise ValueError('bad ü')\ninner()")
    assert result.state is ExecutionState.ERROR
    assert (result.error.name, result.error.value) == ("ValueError", "bad ü")
    assert "inner()" in result.error.traceback
    assert "\x1b" not in result.error.traceback
    assert result.outputs[-1]["output_type"] == "error"
    assert result.session_state_preserved is True


def test_output_before_an_error_is_kept(session: Any) -> None:
    result = run(session, "print('before')\nfrom IPython.display import display\ndisplay('shown')\n1/0")
    assert result.stdout == "before\n"
    assert [o["output_type"] for o in result.outputs] == ["stream", "display_data", "error"]


def test_a_chained_error_tells_both_stories(session: Any) -> None:
    result = run(session, "try:\n    {}['a']\nexcept KeyError as e:\n    raise RuntimeError('outer') from e")
    assert "KeyError" in result.error.traceback
    assert result.error.name == "RuntimeError"


def test_an_error_with_a_huge_message_is_clipped(session: Any) -> None:
    result = run(session, f"raise RuntimeError('x' * {MAX_OUTPUT_BYTES})")
    assert result.error.name == "RuntimeError"
    assert len(result.error.value) < MAX_OUTPUT_BYTES
    assert result.truncated.error_bytes > 0


def test_leaving_by_sys_exit_is_an_error_with_its_code(session: Any) -> None:
    result = run(session, "import sys; sys.exit(7)")
    assert (result.error.name, result.error.value) == ("SystemExit", "7")


def test_input_is_refused_at_once_where_nobody_can_answer(session: Any) -> None:
    result = run(session, "input('name? ')", timeout_seconds=20)
    assert result.error.name == "StdinNotImplementedError"


def test_input_is_answered(session: Any) -> None:
    asked = []

    def answer(event: Any) -> str:
        asked.append((event.prompt, event.password))
        return "Ada"

    result = run(session, "import getpass\nprint('hi', input('name? '), getpass.getpass('pw: '))", on_input=answer)
    assert result.stdout.splitlines()[-1] == "hi Ada Ada"
    assert asked == [("name? ", False), ("pw: ", True)]
