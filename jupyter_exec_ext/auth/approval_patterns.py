"""Approval patterns: rules that select the code that waits for a person's approval.

The patterns help a person to review code. They do not protect against hostile code, which can evade every pattern; the
isolation of the kernel does.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

NEVER, ALWAYS, MATCHING = "never", "always", "matching"
TRIGGERS: dict[str, str] = {
    "magics": "IPython magics, such as %run and %%bash",
    "shell": "shell commands, such as !pip, %sx and %%bash",
    "imports": "import statements; with `modules`, of these only",
    "first_run": "the first execution of each session",
    "pattern": "whatever the regular expression `pattern` finds",
}
# Longer code waits without a search, because a slow expression must not block the server.
MAX_SEARCHED_CHARACTERS = 64 * 1024
# Even a plain expression such as `a.*b` takes quadratic time.
MAX_PATTERN_SEARCHED_CHARACTERS = 16 * 1024
MAX_MODULE_CHARACTERS = 256
DEFAULT_TIMEOUT_SECONDS = 3600.0

# Line ends of `str.splitlines`, which IPython uses first. Python itself has only the first three.
_LINE_END = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# Spaces of `str.isspace` without line ends.
_SPACES = r" \t\x1f\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"
_SPACE = f"[{_SPACES}]*"
# IPython turns an escape for a call, such as `;f a`, into a call and reads it again: `;!id` runs `id`.
_ESCAPES = f"[{_SPACES},;/]*"
# Prompts of code that was pasted from a session. IPython removes them.
_PROMPT = r"(?:>>>|\.\.\.(?!\.)|\.{3,}:|\[nav\] In \[\d+\]:|\[ins\] In \[\d+\]:|In \[\d+\]:)"
_LINE_START = f"^{_ESCAPES}(?:{_PROMPT}{_ESCAPES}){{0,3}}"
# IPython takes a command also after `=`, as in `files = !ls`.
_MAGIC = re.compile(rf"(?:{_LINE_START}|={_SPACE})%{{1,2}}\w", re.MULTILINE)
_SHELL = re.compile(rf"(?:{_LINE_START}|={_SPACE})(?:!|%{{1,2}}(?:bash|sh|script|sx|system)\b)", re.MULTILINE)
# An import can follow `;`, or the colon of a compound statement.
_IMPORT = re.compile(
    rf"(?:{_LINE_START}|[;:]{_SPACE})(?:from(?![\w=])([^\n;:#=]*)|import(?![\w=])([^\n;#]*))"
    r"|\b(?:__import__|import_module)\b",
    re.MULTILINE,
)
_BEFORE_NAMES = re.compile(r"(?<!\w)import(?!\w)")


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """Rule that selects the code that a person must approve.

    Parameters
    ----------
    mode : str
        ``never``, ``always`` or ``matching``.
    when : tuple of str
        With ``matching``: names from `TRIGGERS`, any of which is enough.
    modules : tuple of str
        With the trigger ``imports``: ask for these modules and what is in them; empty for every import.
    pattern : str
        With the trigger ``pattern``: a regular expression, searched in the code.
    timeout_seconds : float
        Longest wait for an answer, in seconds; then the execution ends as ``timeout``.
    """

    mode: str = NEVER
    when: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    pattern: str = ""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS


NO_APPROVAL = ApprovalRule()


def approval_reason(rule: ApprovalRule, code: str, *, first_run: bool) -> str | None:
    """Return the reason why a person must approve code; None if no approval is needed."""
    if rule.mode == NEVER:
        return None
    if rule.mode == ALWAYS:
        return "every execution needs approval"
    if "first_run" in rule.when and first_run:
        return "it is the first execution of its session"
    # `first_run` alone searches nothing, so code of any length is fine.
    if len(code) > MAX_SEARCHED_CHARACTERS and set(rule.when) - {"first_run"}:
        return f"it has more than {MAX_SEARCHED_CHARACTERS} characters, which are not searched"
    # The variants of most code are equal, and each search blocks the event loop.
    variants = tuple(dict.fromkeys(_variants(code)))
    return next(
        (why for trigger in rule.when for variant in variants if (why := _match_trigger(rule, trigger, variant))), None
    )


def _variants(code: str) -> Iterator[str]:
    """Yield code as it is, and with the line ends of IPython and of Python as line feeds.

    A form feed ends a line for IPython and is a space for Python.
    """
    yield code
    yield _LINE_END.sub("\n", code)
    yield _LINE_END.sub("\n", code.replace("\f", " "))


def _match_trigger(rule: ApprovalRule, trigger: str, code: str) -> str | None:
    if trigger == "magics" and _MAGIC.search(code):
        return "it uses a magic command"
    if trigger == "shell" and _SHELL.search(code):
        return "it runs a shell command"
    if trigger == "imports":
        return _match_import(rule, code)
    if trigger == "pattern":
        return _match_pattern(rule, code)
    return None


def _match_pattern(rule: ApprovalRule, code: str) -> str | None:
    if len(code) > MAX_PATTERN_SEARCHED_CHARACTERS:
        return f"it has more than {MAX_PATTERN_SEARCHED_CHARACTERS} characters, in which no pattern is searched"
    return "it matches the pattern of the policy" if re.search(rule.pattern, code) else None


def _match_import(rule: ApprovalRule, code: str) -> str | None:
    # Code decides how many names it imports: each different one is looked up once, in a set.
    modules = frozenset(rule.modules)
    for match in _IMPORT.finditer(code):
        if match[1] is None and match[2] is None:
            return "it imports by a function"
        listed = match[2] if match[1] is None else _module_of(match[1])
        # The name goes on in the next line, which `_IMPORT` does not read.
        if "\\" in listed:
            return "it imports a module that is named on another line"
        for name in dict.fromkeys(map(_dotted_name, listed.split(","))):
            if name and (not modules or not modules.isdisjoint(_with_parents(name))):
                return f"it imports {name[:100]}"
    return None


def _module_of(rest: str) -> str:
    """Return the module of an import statement from the text after ``from``; empty if it is no import."""
    module, *names = _BEFORE_NAMES.split(rest, maxsplit=1)
    return "".join(module.split()) if names or "\\" in module else ""


def _dotted_name(listed: str) -> str:
    """Return a module's name without its alias, normalised like Python: spaces and forms of letters differ."""
    name, *_ = ".".join(part.strip() for part in listed.split(".")).split(None, 1) or [""]
    # One character more than a policy's longest name, so a cut name matches none.
    # The cut also bounds the work of `_with_parents`.
    return unicodedata.normalize("NFKC", name[: MAX_MODULE_CHARACTERS + 1])


def _with_parents(name: str) -> Iterator[str]:
    """Yield a module's name and the names of its packages."""
    yield name
    while "." in name:
        name = name.rpartition(".")[0]
        yield name
