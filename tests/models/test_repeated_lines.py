"""Tracebacks of recursions."""

from __future__ import annotations

import time

import pytest

from jupyter_exec_ext.models.plain_text import fold_repeats

HEAD, LAST = ["Traceback", "first frame"], ["RecursionError: too deep"]
FRAME = ["", "Cell In[1], line 2, in f(n)", "      1 def f(n):", "----> 2     return f(n + 1)"]
OTHER = ["", "Cell In[1], line 5, in g(n)", "----> 5     return f(n)"]


@pytest.mark.parametrize(
    "frames", [FRAME, FRAME + OTHER, FRAME + FRAME + OTHER, ["one line"], FRAME + OTHER + ["", "File x.py"] + OTHER]
)
@pytest.mark.parametrize("times", [5, 971])
def test_frames_that_follow_each_other_again_and_again_are_counted(frames: list[str], times: int) -> None:
    folded = fold_repeats("\n".join([*HEAD, *frames * times, *LAST])).split("\n")
    which = "line above was" if len(frames) == 1 else f"{len(frames)} lines above were"
    said = f"[... the {which} repeated {times - 2} more times ...]"
    assert folded == [*HEAD, *frames, said, *frames, *LAST]


def test_a_recursion_that_began_or_ended_elsewhere_keeps_those_frames() -> None:
    text = "\n".join([*HEAD, *OTHER, *FRAME * 50, *OTHER, *LAST])
    folded = fold_repeats(text).split("\n")
    assert folded[: len(HEAD + OTHER)] == HEAD + OTHER
    assert folded[-len(OTHER + LAST) :] == OTHER + LAST
    assert len(folded) == len(HEAD + OTHER + FRAME + FRAME + OTHER + LAST) + 1


@pytest.mark.parametrize("text", ["", "E: v", "\n".join(FRAME * 4), "\n".join(f"line {n}" for n in range(500))])
def test_other_tracebacks_stay_as_they_are(text: str) -> None:
    assert fold_repeats(text) == text


@pytest.mark.parametrize(
    "lines",
    [
        ["a"] * 50_000,
        ["a", "b"] * 25_000,
        (["a"] * 4 + ["b"]) * 9_999,
        [str(n % 397 * n % 11) for n in range(30_000)],
    ],
)
def test_its_time_grows_with_the_length(lines: list[str]) -> None:
    began = time.process_time()
    fold_repeats("\n".join(lines))
    assert time.process_time() - began < 3
