"""What is sent to a session, as source, to make functions known there.

It runs with any Python from 3.8 on and its standard library alone, and refers to nothing outside the function.
"""

# Annotations would be evaluated in the session, which lacks their names.
# mypy: ignore-errors

from __future__ import annotations


def load_functions(name, source, packages, namespace):
    """Make a module of functions importable, and its names known, once the packages they need are there.

    Parameters
    ----------
    name : str
        The module's name.
    source : str
        Its source.
    packages : list of (str, str)
        What is needed, as pip writes it, and the package's name alone.
    namespace : dict
        Gets the module's public names.
    """
    import __future__

    import linecache
    import sys
    import types
    from importlib import machinery, metadata, util

    try:
        from packaging.requirements import Requirement
    except ImportError:  # then only whether packages are there is looked at, not their versions
        Requirement = None  # noqa: N806

    def problem(requirement, package):
        parsed = Requirement and Requirement(requirement)
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
    linecache.cache[origin] = (len(source), None, source.splitlines(True), origin)  # for tracebacks and inspect
    module = types.ModuleType(name)
    module.__file__ = origin
    module.__spec__ = machinery.ModuleSpec(name, None, origin=origin)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        # A name that only an annotation mentions need not be there.
        flags = __future__.annotations.compiler_flag
        exec(compile(source, origin, "exec", flags, True), vars(module))  # noqa: S102
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise
    namespace.update((key, value) for key, value in vars(module).items() if not key.startswith("_"))
