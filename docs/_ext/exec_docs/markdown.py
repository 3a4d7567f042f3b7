"""Pieces of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`+[^`]+`+)")
_SPECIAL = re.compile(r"([*_<\[\]])")
# Quoted words, such as 'auto', and names, such as max_bytes, ExecStore.max_bytes, KERNEL_* and max_sessions=1.
_NAME = re.compile(r"(?<!\w)'([^\s']+)'(?!\w)|(?<![\w./-])([\w.]*\w_(?:\w[\w.]*\w(?:=\w+)?|\*))")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; what a cell holds cannot end it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(text) for text in line) + " |" for line in lines) + "\n"


def cell(text: str) -> str:
    """Return text on one line, with bars that end no cell."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Return text as code, whatever backticks it holds; nothing for no text."""
    if not text:
        return ""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def section(level: int, title: str, *bodies: str) -> str:
    """Return a heading and what stands below it; empty bodies are left out."""
    return "\n\n".join([f"{'#' * level} {title}", *(body.strip("\n") for body in bodies if body.strip())]) + "\n\n"


def sentence(text: str) -> str:
    """Return text that begins with a capital and ends with a full stop."""
    text = text.strip()
    if not text:
        return ""
    text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def prose(text: str) -> str:
    """Return sentences in which nothing but what is in backticks is Markdown."""
    parts = _CODE.split(text)
    return "".join(part if part.startswith("`") else _SPECIAL.sub(r"\\\1", part) for part in parts)


def named(text: str) -> str:
    """Return plain text as Markdown in which quoted words and names with an underscore are code."""
    parts = _CODE.split(text.replace("``", "`"))
    return prose("".join(p if p.startswith("`") else _NAME.sub(lambda m: code(m[1] or m[2]), p) for p in parts))
