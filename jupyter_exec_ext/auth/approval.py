"""Which code waits until a person has approved it.

What the rules find in code is advice for a person, and no protection: whoever wants to get past a pattern does. What
holds hostile code is the isolation of its kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

NEVER, ALWAYS, MATCHING = "never", "always", "matching"
TRIGGERS: dict[str, str] = {
    "magics": "IPython magics, such as %run and %%bash",
    "shell": "shell commands, such as !pip and %%bash",
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

_MAGIC = re.compile(r"^[ \t\f]*%{1,2}\w|=[ \t\f]*%\w", re.MULTILINE)
_SHELL = re.compile(r"^[ \t\f]*!|=[ \t\f]*!|\A[ \t\f\n]*%%(?:ba)?sh\b", re.MULTILINE)
_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import|import[ \t]+([^\n;#]+))|\b(?:__import__|import_module)\b",
    re.MULTILINE,
)


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
    return next((why for trigger in rule.when if (why := _found(rule, trigger, code))), None)


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
        listed = match[1] or match[2]
        if listed is None:
            return "it imports by a function"
        names = dict.fromkeys(name.split(None, 1)[0] for name in listed.split(",") if name.strip())
        for name in names:
            if not modules or not modules.isdisjoint(_with_parents(name)):
                return f"it imports {name[:100]}"
    return None


def _with_parents(name: str) -> Iterator[str]:
    """Yield a module's name and those of the packages it is in."""
    name = name[: MAX_MODULE_CHARACTERS + 1]  # a longer one cannot be meant, and hostile code has very long ones
    yield name
    while "." in name:
        name = name.rpartition(".")[0]
        yield name
