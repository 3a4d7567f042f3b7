"""Functions in a session: the code that makes them known there, and whether they still are."""

from __future__ import annotations

import inspect
import keyword
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from string import Template
from typing import Protocol

from ..client.fork_safety import ProcessLock
from ..errors import LanguageNotSupported
from ..models import Execution
from . import function_setup
from .function_sources import AnyFunction, build_python_functions_file, name_of, packages_of, to_stub


class FunctionsModule:
    """Functions as a module of a session, whatever runs the session.

    Parameters
    ----------
    functions : iterable of FunctionWithRequirements, FunctionWithRequirementsStr or callable
        The functions.
    name : str
        The name under which they can be imported.

    Raises
    ------
    ValueError
        If the module cannot have this name, a function's source cannot be had, or two have the same name.
    """

    def __init__(self, functions: Iterable[AnyFunction], name: str) -> None:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"Module name {name!r} is not a name that Python can import")
        if name in sys.stdlib_module_names:
            raise ValueError(f"Module name {name!r} is one of Python's own")
        functions = list(functions)
        self.name = name
        self.names = list(map(name_of, functions))
        for twice in {one for one in self.names if self.names.count(one) > 1}:
            raise ValueError(f"two functions have the name {twice}")
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
        """What has to run in a session, in Python, and does all there is to do in this one run.

        It checks that the packages are there, installs nothing, and is meant to be read: a person may have to approve
        it, and it is in the session's notebook.
        """
        lines = "".join(f"    {line!r}\n" for line in self.source.splitlines(keepends=True))
        load = inspect.getsource(function_setup.load_functions)
        return (
            f"{load}\n\nload_functions({self.name!r}, (\n{lines}), {self.packages!r}, globals())\ndel load_functions\n"
        )

    def check(self, loading: Execution) -> None:
        """Raise `ValueError` if the run of the loading code says that the functions are not there."""
        if loading.ok:
            return
        if loading.error is not None and loading.error.name == "PackagesUnavailable":
            raise ValueError(f"Packages unavailable in the session: {loading.error.value}")
        raise ValueError(f"Functions failed to load: {loading.to_text()}")


class RunsCode(Protocol):
    """What functions are loaded into."""

    def run(self, code: str, *, timeout_seconds: float | None = None, language: str | None = None) -> Execution:
        """Run code and return the finished execution."""


class RunsCodeAsync(Protocol):
    """The same, on an event loop."""

    async def run(self, code: str, *, timeout_seconds: float | None = None, language: str | None = None) -> Execution:
        """Run code and return the finished execution."""


@dataclass(frozen=True)
class _Loaded:
    session: object
    by: Execution


class LoadedFunctions:
    """Keeps functions loaded in whatever session an executor has at the moment.

    Parameters
    ----------
    timeout_seconds : float
        How long loading them may take.
    """

    def __init__(self, module: FunctionsModule, timeout_seconds: float) -> None:
        self.module = module
        self._timeout_seconds = timeout_seconds
        self._loading = ProcessLock()
        self._loaded: _Loaded | None = None

    def ensure(self, session: RunsCode) -> None:
        """Load the functions, unless they are known to be in this session.

        Raises
        ------
        ValueError
            If they cannot be loaded, with why; of packages that are missing, with their names.
        """
        if not self.module:
            return
        with self._loading:
            if self._are_in(session):
                return
            self._loaded = None
            code = self.module.loading_code
            try:
                loading = session.run(code, timeout_seconds=self._timeout_seconds, language="python")
            except LanguageNotSupported as error:
                raise ValueError(f"Functions failed to load: {error.message}") from error
            self.module.check(loading)
            self._loaded = _Loaded(session, loading)

    async def ensure_async(self, session: RunsCodeAsync) -> None:
        """Do the same as `ensure`, for one caller at a time."""
        if not self.module or self._are_in(session):
            return
        self._loaded = None
        code = self.module.loading_code
        try:
            loading = await session.run(code, timeout_seconds=self._timeout_seconds, language="python")
        except LanguageNotSupported as error:
            raise ValueError(f"Functions failed to load: {error.message}") from error
        self.module.check(loading)
        self._loaded = _Loaded(session, loading)

    def _are_in(self, session: object) -> bool:
        return self._loaded is not None and self._loaded.session is session

    def forget(self) -> None:
        """Take note that the session's kernel is another one."""
        self._loaded = None

    def note_on(self, session: object, execution: Execution) -> str | None:
        """Take note of what a run tells about its kernel; return what a model has to know of it, if anything."""
        if not self.were_missing(session, execution) or execution.ok:
            return None
        return (
            f"This ran in a fresh kernel, without the functions of the module {self.module.name}. The next code will "
            "have them again; variables, imports and definitions from before are gone."
        )

    def were_missing(self, session: object, execution: Execution) -> bool:
        """Take note of what a run tells about its kernel; return whether it was a fresh one, without the functions.

        Somebody else may have restarted it, or it died while nothing ran.
        """
        loaded = self._loaded
        if loaded is None or loaded.session is not session:
            return False
        now, then = execution, loaded.by
        if now.kernel_starts == then.kernel_starts and now.session_state_preserved is False:
            self.forget()
            return False
        counts = now.execution_count, then.execution_count
        if now.session_state_lost is not None:
            self.forget()
            return True
        begun_anew = now.kernel_starts == then.kernel_starts and None not in counts and counts[0] <= counts[1]  # type: ignore[operator]
        if now.kernel_starts > then.kernel_starts or begun_anew:
            self.forget()
            return True
        return False
