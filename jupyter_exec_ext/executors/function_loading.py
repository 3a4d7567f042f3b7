"""Functions of an executor in a session: sends `function_setup` there, and checks that they are still defined."""

from __future__ import annotations

import contextlib
import inspect
import keyword
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from string import Template
from typing import Protocol

from ..client.fork_safety import ProcessLock
from ..errors import LanguageNotSupported
from ..models import Execution
from . import function_setup
from .function_sources import AnyFunction, build_python_functions_file, name_of, packages_of, to_stub

#: Description of functions, with ``$module_name`` and ``$functions``.
FUNCTION_PROMPT_TEMPLATE = """\
You have access to the following user defined functions. They can be accessed from the module called `$module_name` by \
their function names.

For example, if there was a function called `foo` you could import it by writing `from $module_name import foo`

$functions"""


class FunctionsModule:
    """Functions as a Python module of a session.

    Parameters
    ----------
    functions : iterable of FunctionWithRequirements, FunctionWithRequirementsStr or callable
        The functions.
    name : str
        The name under which they can be imported.

    Raises
    ------
    ValueError
        If the module's name is invalid, a function has no source, or two functions have the same name.
    """

    def __init__(self, functions: Iterable[AnyFunction], name: str) -> None:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"Module name {name!r} is not a name that Python can import")
        if name in sys.stdlib_module_names:
            raise ValueError(f"Module name {name!r} is one of Python's own")
        functions = list(functions)
        self.name = name
        self.names = list(map(name_of, functions))
        repeated = [one for one, count in Counter(self.names).items() if count > 1]
        if repeated:
            raise ValueError(f"more than one function has the name {', '.join(repeated)}; rename all but one")
        self.source = build_python_functions_file(functions)
        self.packages = list(dict.fromkeys(package for one in functions for package in packages_of(one)))
        self._stubs = "\n\n".join(map(to_stub, functions))

    def __bool__(self) -> bool:
        return bool(self.names)

    def prompt(self, template: str) -> str:
        """Return a text for a model, with ``$module_name`` and ``$functions`` filled in."""
        return Template(template).substitute(module_name=self.name, functions=self._stubs)

    @property
    def loading_code(self) -> str:
        """Python code that checks the packages and defines the functions in a session; it installs nothing.

        It is readable, since a person may have to approve it and since it is in the session's notebook.
        """
        lines = "".join(f"    {line!r}\n" for line in self.source.splitlines(keepends=True))
        load = inspect.getsource(function_setup.load_functions)
        return (
            f"{load}\n\nload_functions({self.name!r}, (\n{lines}), {self.packages!r}, globals())\ndel load_functions\n"
        )

    def check(self, loading: Execution) -> None:
        """Raise `ValueError` if a run of the loading code has failed."""
        if loading.ok:
            return
        if loading.error is not None and loading.error.name == "PackagesUnavailable":
            raise ValueError(f"Packages unavailable in the session: {loading.error.value}")
        raise ValueError(f"Functions failed to load: {loading.to_text()}")


class CodeRunner(Protocol):
    """Session that functions are loaded into."""

    def run(self, code: str, *, timeout_seconds: float | None = None, language: str | None = None) -> Execution:
        """Run code and return the finished execution."""


class AsyncCodeRunner(Protocol):
    """Asynchronous session that functions are loaded into."""

    async def run(self, code: str, *, timeout_seconds: float | None = None, language: str | None = None) -> Execution:
        """Run code and return the finished execution."""


class LoadedFunctions:
    """Keeps functions loaded in an executor's current session.

    Parameters
    ----------
    module : FunctionsModule
        The functions.
    timeout_seconds : float
        Timeout of loading them.
    """

    def __init__(self, module: FunctionsModule, timeout_seconds: float) -> None:
        self.module = module
        self._timeout_seconds = timeout_seconds
        self._lock = ProcessLock()
        self._loaded: tuple[object, Execution] | None = None  # the session, and the run that loaded them there

    def ensure(self, session: CodeRunner) -> None:
        """Load the functions, unless they are known to be in this session.

        Raises
        ------
        ValueError
            If they cannot be loaded, with the reason, such as the names of missing packages.
        """
        with self._lock:
            self._ensure(session)

    def reload(self, session: CodeRunner) -> None:
        """Load the functions into the session's fresh kernel; raise as `ensure` does."""
        # Under the lock: another thread may still be about to note that it has loaded them into the old kernel.
        with self._lock:
            self.forget()
            self._ensure(session)

    def _ensure(self, session: CodeRunner) -> None:
        if self._is_loaded_in(session):
            return
        self.forget()
        with _language_refusal_as_value_error():
            run = session.run(self.module.loading_code, timeout_seconds=self._timeout_seconds, language="python")
        self._keep(session, run)

    async def ensure_async(self, session: AsyncCodeRunner) -> None:
        """Do the same as `ensure`, for one caller at a time."""
        if self._is_loaded_in(session):
            return
        self.forget()
        with _language_refusal_as_value_error():
            run = await session.run(self.module.loading_code, timeout_seconds=self._timeout_seconds, language="python")
        self._keep(session, run)

    def forget(self) -> None:
        """Mark the functions as not loaded, so that the next `ensure` loads them again."""
        self._loaded = None

    def note_restored(self, session: object, kernel_starts: int) -> None:
        """Note that the session's kernel was made again from a checkpoint that has the functions."""
        if self._loaded is not None and self._loaded[0] is session:
            self._loaded = session, replace(self._loaded[1], kernel_starts=kernel_starts)

    def describe_lost_functions(self, session: object, execution: Execution) -> str | None:
        """Return a note for the model if a run failed in a fresh kernel, which lacks the functions.

        The kernel may have died while nothing ran, or another client may have restarted it.
        """
        if self._loaded is None or self._loaded[0] is not session:
            return None
        loading = self._loaded[1]
        if _has_ended_its_kernel(execution, loading):
            self.forget()  # for the next run; this one had the functions
            return None
        if not _has_found_fresh_kernel(execution, loading):
            return None
        self.forget()
        if execution.ok:
            return None
        return (
            f"This ran in a fresh kernel, without the functions of the module {self.module.name}. The next code will "
            "have them again; variables, imports and definitions from before are gone."
        )

    def _is_loaded_in(self, session: object) -> bool:
        return not self.module or (self._loaded is not None and self._loaded[0] is session)

    def _keep(self, session: object, run: Execution) -> None:
        self.module.check(run)
        self._loaded = session, run


@contextlib.contextmanager
def _language_refusal_as_value_error() -> Iterator[None]:
    """Raise `ValueError` if the session's kernel cannot run Python."""
    try:
        yield
    except LanguageNotSupported as error:
        raise ValueError(f"Functions failed to load: {error.message}") from error


def _has_ended_its_kernel(execution: Execution, loading: Execution) -> bool:
    """Return whether a run began in the kernel that had the functions, and that kernel ended with it."""
    return execution.kernel_starts == loading.kernel_starts and execution.session_state_preserved is False


def _has_found_fresh_kernel(execution: Execution, loading: Execution) -> bool:
    """Return whether a run began in a later kernel than the one that loaded the functions."""
    if execution.session_state_lost is not None or execution.kernel_starts > loading.kernel_starts:
        return True
    return execution.kernel_starts == loading.kernel_starts and _has_restarted_count(execution, loading)


def _has_restarted_count(execution: Execution, loading: Execution) -> bool:
    """Return whether the kernel counts executions anew, which shows a restart that the server has not seen."""
    now, then = execution.execution_count, loading.execution_count
    return now is not None and then is not None and now <= then
