"""Approval patterns: rules that select the code that waits for a person's approval.

The patterns help a person to review code. They do not protect against hostile code, which can evade every pattern; the
isolation of the kernel does.

IPython and Python end lines at different characters, so each trigger searches several *variants* of the code, which
differ in their line ends. With each variant comes a text of the same length, ``lines``, in which every line feed ends
a line of the person's editor: it gives the line number of a match.

The *kind* of a finding is what a person can approve for the rest of the session: ``always``, the name of a trigger, or
``import NAME`` and ``new import NAME`` for one module. It is empty for a finding that must be approved each time.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ..models import ApprovalFinding

NEVER, ALWAYS, MATCHING = "never", "always", "matching"
TRIGGERS: dict[str, str] = {
    "magics": "IPython magics, such as %run and %%bash",
    "shell": "shell commands, such as !pip, %sx and %%bash",
    "imports": "import statements; with `modules`, of these only",
    "new_imports": "the same, until a person has approved an import of the module in the session",
    "first_run": "the first execution of each session",
    "pattern": "whatever the regular expression `pattern` finds",
}
# Longer code waits without a search, because a slow expression must not block the server.
MAX_SEARCHED_CHARACTERS = 64 * 1024
# Even a plain expression such as `a.*b` takes quadratic time.
MAX_PATTERN_SEARCHED_CHARACTERS = 16 * 1024
MAX_MODULE_CHARACTERS = 256
# A person reads no more of them, and each record has them.
MAX_FINDINGS = 20
DEFAULT_TIMEOUT_SECONDS = 3600.0

# Line ends of `str.splitlines`, which IPython uses first. Python itself has only the first two.
_LINE_ENDS = dict.fromkeys(map(ord, "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), "\n")
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


def find_reasons(
    rule: ApprovalRule, code: str, *, first_run: bool, approved: Collection[str] = ()
) -> tuple[ApprovalFinding, ...]:
    """Return the reasons why a person must approve code; empty if no approval is needed.

    Parameters
    ----------
    rule : ApprovalRule
        The rule.
    code : str
        The code.
    first_run : bool
        True for the first execution of a session.
    approved : collection of str
        Kinds of findings that a person has approved for the whole session.

    Returns
    -------
    tuple of ApprovalFinding
        At most `MAX_FINDINGS`, by trigger and then by line.
    """
    found: dict[ApprovalFinding, None] = {}
    for finding in _findings(rule, code, first_run, frozenset(approved)):
        found[finding] = None
        if len(found) == MAX_FINDINGS:
            break
    return tuple(found)


def _findings(rule: ApprovalRule, code: str, first_run: bool, approved: frozenset[str]) -> Iterator[ApprovalFinding]:
    """Yield findings, some of them more than once."""
    if rule.mode == ALWAYS and ALWAYS not in approved:
        yield ApprovalFinding(ALWAYS, "every execution needs approval")
    if "first_run" in rule.when and first_run:
        yield ApprovalFinding("", "it is the first execution of its session")
    triggers = [trigger for trigger in rule.when if trigger != "first_run" and trigger not in approved]
    # `first_run` alone searches nothing, so code of any length is fine.
    if triggers and len(code) > MAX_SEARCHED_CHARACTERS:
        yield ApprovalFinding("", f"it has more than {MAX_SEARCHED_CHARACTERS} characters, which are not searched")
        return
    # The variants of most code are equal, and each search blocks the event loop.
    variants = tuple(dict.fromkeys(_variants(code)))
    for trigger in triggers:
        for variant, lines in variants:
            yield from _match_trigger(rule, trigger, variant, lines, approved)


def _variants(code: str) -> Iterator[tuple[str, str]]:
    """Yield the variants, each with its ``lines``: the code itself, and with the line ends of IPython and of Python.

    A form feed ends a line for IPython and is a space for Python.
    """
    yield code, code.replace("\r\n", " \n").replace("\r", "\n")
    unix = code.replace("\r\n", "\n")
    lines = unix.replace("\r", "\n")
    yield unix.translate(_LINE_ENDS), lines
    yield unix.replace("\f", " ").translate(_LINE_ENDS), lines


def _match_trigger(
    rule: ApprovalRule, trigger: str, code: str, lines: str, approved: frozenset[str]
) -> Iterator[ApprovalFinding]:
    if trigger == "magics":
        yield from (ApprovalFinding(trigger, "it uses a magic command", n) for n, _ in _matches(_MAGIC, code, lines))
    elif trigger == "shell":
        yield from (ApprovalFinding(trigger, "it runs a shell command", n) for n, _ in _matches(_SHELL, code, lines))
    elif trigger == "pattern":
        yield from _match_pattern(rule, code, lines)
    else:
        yield from _match_imports(rule, trigger, code, lines, approved)


def _matches(pattern: re.Pattern[str], code: str, lines: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield the matches of a pattern, each with the number of its line."""
    line, counted = 1, 0
    for match in pattern.finditer(code):
        # On from the match before: hostile code has thousands of matches.
        line += lines.count("\n", counted, match.start())
        counted = match.start()
        yield line, match


def _match_pattern(rule: ApprovalRule, code: str, lines: str) -> Iterator[ApprovalFinding]:
    if len(code) > MAX_PATTERN_SEARCHED_CHARACTERS:
        many = MAX_PATTERN_SEARCHED_CHARACTERS
        yield ApprovalFinding("", f"it has more than {many} characters, in which no pattern is searched")
    elif match := re.search(rule.pattern, code):
        # Only the first match: each further search costs as much again.
        line = 1 + lines.count("\n", 0, match.start())
        yield ApprovalFinding("pattern", "it matches the pattern of the policy", line)


def _match_imports(
    rule: ApprovalRule, trigger: str, code: str, lines: str, approved: frozenset[str]
) -> Iterator[ApprovalFinding]:
    # Code decides how many names it imports: each different one is looked up once, in a set.
    modules = frozenset(rule.modules)
    own_prefix = "new import " if trigger == "new_imports" else "import "
    # A module that was approved as an import is not new, either.
    prefixes = {"import ", own_prefix}
    # Modules that a person has approved for the session; what is in them is approved, too.
    known = {kind.removeprefix(prefix) for kind in approved for prefix in prefixes if kind.startswith(prefix)}
    for line, match in _matches(_IMPORT, code, lines):
        if match[1] is None and match[2] is None:
            yield ApprovalFinding("", "it imports by a function", line)
            continue
        listed = match[2] if match[1] is None else _module_of(match[1])
        # The name goes on in the next line, which `_IMPORT` does not read.
        if "\\" in listed:
            yield ApprovalFinding("", "it imports a module that is named on another line", line)
            continue
        for name in dict.fromkeys(map(_dotted_name, listed.split(","))):
            is_asked = name and (not modules or not modules.isdisjoint(_with_parents(name)))
            if is_asked and (not known or known.isdisjoint(_with_parents(name))):
                yield ApprovalFinding(f"{own_prefix}{name}", f"it imports {name[:100]}", line)


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
