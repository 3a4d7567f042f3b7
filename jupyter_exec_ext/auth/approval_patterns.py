"""Which code waits until a person has approved it.

What the rules find in code is advice for a person, and no protection: whoever wants to get past a pattern does. What
holds hostile code is the isolation of its kernel.
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
# Longer code is not searched, it waits: an expression that takes long must not hold up the server.
MAX_SEARCHED_CHARACTERS = 64 * 1024
# An expression as plain as `a.*b` takes time by the square of this.
MAX_PATTERN_SEARCHED_CHARACTERS = 16 * 1024
MAX_MODULE_CHARACTERS = 256
DEFAULT_TIMEOUT_SECONDS = 3600.0

# Where `str.splitlines`, with which IPython begins, ends a line. Python itself knows the first three alone.
_LINE_END = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# What `str.isspace` takes for a space, but for line ends.
_SPACES = r" \t\x1f\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"
_SPACE = f"[{_SPACES}]*"
# IPython's escapes for a call, such as `;f a`, become the text of a call, which it reads again: `;!id` runs `id`.
_ESCAPES = f"[{_SPACES},;/]*"
# Prompts that come with code that is pasted from a session, and that IPython removes.
_PROMPT = r"(?:>>>|\.\.\.(?!\.)|\.{3,}:|\[nav\] In \[\d+\]:|\[ins\] In \[\d+\]:|In \[\d+\]:)"
_LINE_START = f"^{_ESCAPES}(?:{_PROMPT}{_ESCAPES}){{0,3}}"
_MAGIC = re.compile(rf"(?:{_LINE_START}|={_SPACE})%{{1,2}}\w", re.MULTILINE)
_SHELL = re.compile(rf"(?:{_LINE_START}|={_SPACE})(?:!|%{{1,2}}(?:bash|sh|script|sx|system)\b)", re.MULTILINE)
_IMPORT = re.compile(
    rf"(?:{_LINE_START}|[;:]{_SPACE})(?:from(?![\w=])([^\n;:#=]*)|import(?![\w=])([^\n;#]*))"
    r"|\b(?:__import__|import_module)\b",
    re.MULTILINE,
)
_BEFORE_NAMES = re.compile(r"(?<!\w)import(?!\w)")


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """When to ask a person.

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
        How long to wait for an answer; then the execution ends as ``timeout``.
    """

    mode: str = NEVER
    when: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    pattern: str = ""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS


NO_APPROVAL = ApprovalRule()


def why_ask(rule: ApprovalRule, code: str, *, first_run: bool) -> str | None:
    """Return why a person must be asked about code, None if not."""
    if rule.mode == NEVER:
        return None
    if rule.mode == ALWAYS:
        return "every execution needs approval"
    if "first_run" in rule.when and first_run:
        return "it is the first execution of its session"
    if len(code) > MAX_SEARCHED_CHARACTERS and set(rule.when) - {"first_run"}:
        return f"it has more than {MAX_SEARCHED_CHARACTERS} characters, which are not searched"
    readings = tuple(dict.fromkeys(_readings(code)))
    return next((why for trigger in rule.when for reading in readings if (why := _found(rule, trigger, reading))), None)


def _readings(code: str) -> Iterator[str]:
    """Yield code as it is, and as IPython and Python split it into lines, with a line feed at each end.

    They differ in the form feed: it ends a line for IPython and is a space for Python.
    """
    yield code
    yield _LINE_END.sub("\n", code)
    yield _LINE_END.sub("\n", code.replace("\f", " "))


def _found(rule: ApprovalRule, trigger: str, code: str) -> str | None:
    if trigger == "magics" and _MAGIC.search(code):
        return "it uses a magic command"
    if trigger == "shell" and _SHELL.search(code):
        return "it runs a shell command"
    if trigger == "imports":
        return _import_found(rule, code)
    if trigger == "pattern":
        return _pattern_found(rule, code)
    return None


def _pattern_found(rule: ApprovalRule, code: str) -> str | None:
    if len(code) > MAX_PATTERN_SEARCHED_CHARACTERS:
        return f"it has more than {MAX_PATTERN_SEARCHED_CHARACTERS} characters, in which no pattern is searched"
    return "it matches the pattern of the policy" if re.search(rule.pattern, code) else None


def _import_found(rule: ApprovalRule, code: str) -> str | None:
    modules = frozenset(rule.modules)
    for match in _IMPORT.finditer(code):
        if match[1] is None and match[2] is None:
            return "it imports by a function"
        listed = match[2] if match[1] is None else _module_of(match[1])
        if "\\" in listed:
            return "it imports a module that is named on another line"
        for name in dict.fromkeys(map(_dotted_name, listed.split(","))):
            if name and (not modules or not modules.isdisjoint(_with_parents(name))):
                return f"it imports {name[:100]}"
    return None


def _module_of(rest: str) -> str:
    """Return the module of an import statement, from what follows its ``from``; empty if it is none."""
    module, *names = _BEFORE_NAMES.split(rest, maxsplit=1)
    return "".join(module.split()) if names or "\\" in module else ""


def _dotted_name(listed: str) -> str:
    """Return a module's name as Python reads it, without an alias: spaces may be in it, and other forms of letters."""
    name, *_ = ".".join(part.strip() for part in listed.split(".")).split(None, 1) or [""]
    return unicodedata.normalize("NFKC", name[: MAX_MODULE_CHARACTERS + 1])


def _with_parents(name: str) -> Iterator[str]:
    """Yield a module's name and those of the packages it is in."""
    yield name
    while "." in name:
        name = name.rpartition(".")[0]
        yield name
