"""Function that is sent to a session, where it defines an executor's functions; `function_loading` sends it.

It runs on Python 3.8 and later with the standard library only, and refers to nothing outside of the function.
"""

# Annotations would be evaluated in the session, which lacks their names.
# mypy: ignore-errors

from __future__ import annotations


def load_functions(name, source, packages, namespace):
    """Check the packages that functions need, and define the functions as an importable module.

    Parameters
    ----------
    name : str
        The module's name.
    source : str
        Its source.
    packages : list of (str, str)
        Each requirement as pip writes it, and the package's name.
    namespace : dict
        Gets the module's public names.
    """
    import __future__

    import io
    import linecache
    import sys
    import types
    from contextlib import ExitStack
    from importlib import machinery, metadata, util

    try:
        from packaging import requirements
    except ImportError:  # then packages are checked for presence, not for their versions
        requirements = None

    def problem(requirement, package):
        parsed = requirements and requirements.Requirement(requirement)
        if parsed and parsed.marker and not parsed.marker.evaluate():
            return None
        try:
            there = metadata.version(package)
        except metadata.PackageNotFoundError:
            try:
                found = util.find_spec(package.replace("-", "_"))
            except (ImportError, ValueError):
                found = None
            return None if found else requirement
        if parsed and there and not parsed.specifier.contains(there, prereleases=True):
            return f"{requirement} (there is {there})"
        return None

    missing = [text for text in (problem(*package) for package in packages) if text]
    if missing:
        error = type("PackagesUnavailable", (ImportError,), {})
        raise error("; ".join(missing))

    origin = f"<{name}>"
    # For tracebacks and inspect. `source.splitlines` would also split at separators that Python does not count.
    linecache.cache[origin] = (len(source), None, list(io.StringIO(source, newline=None)), origin)
    module = types.ModuleType(name)
    module.__file__ = origin
    module.__spec__ = machinery.ModuleSpec(name, None, origin=origin)
    before = sys.modules.get(name)
    sys.modules[name] = module
    with ExitStack() as undo:
        if before is None:
            undo.callback(sys.modules.pop, name)
        else:
            undo.callback(sys.modules.update, {name: before})
        # With this flag annotations are not evaluated, so their names may be missing.
        flags = __future__.annotations.compiler_flag
        exec(compile(source, origin, "exec", flags, True), vars(module))  # noqa: S102  # as in a cell
        undo.pop_all()
    namespace.update((key, value) for key, value in vars(module).items() if not key.startswith("_"))
