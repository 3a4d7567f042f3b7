"""The settings, from the traits of what can be configured."""

from __future__ import annotations

import inspect
from typing import Any

from traitlets import Bool, DefaultHandler, Dict, Enum, Float, HasTraits, Integer, List, TraitType, Unicode, Union

from jupyter_exec_ext.aca.provisioner import ACAProvisioner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.fleet.pool_settings import ExecPool
from jupyter_exec_ext.forkserver import ForkServerProvisioner
from jupyter_exec_ext.gateway import ExecPersonality
from jupyter_exec_ext.isolation.common.isolated_provisioner import IsolatedProvisioner
from jupyter_exec_ext.isolation.sandbox.sandbox_provisioner import SandboxProvisioner
from jupyter_exec_ext.server.extension_app import ExecExtensionApp
from jupyter_exec_ext.store.store import ExecStore

from .markdown import code, named, section

CONFIGURABLES: tuple[type[HasTraits], ...] = (
    ExecEngine,
    ExecStore,
    ExecExtensionApp,
    ExecPersonality,
    IsolatedProvisioner,
    SandboxProvisioner,
    ForkServerProvisioner,
    ACAProvisioner,
    ExecPool,
)
_PACKAGE = "jupyter_exec_ext"
_KINDS: dict[type[TraitType[Any, Any]], str] = {
    Bool: "`True` or `False`",
    Integer: "a whole number",
    Float: "a number",
    Unicode: "a text",
    List: "a list",
    Dict: "a dictionary",
}


def settings(cls: type[HasTraits]) -> str:
    """Return a section for each setting of a class, below what the class does."""
    return _class_text(cls) + "\n\n" + "".join(_trait(cls, *item) for item in own_traits(cls).items())


def own_traits(cls: type[HasTraits]) -> dict[str, TraitType[Any, Any]]:
    """Return the settings of ours that no other class of the table has already."""
    others = [base for base in cls.__mro__[1:] if base in CONFIGURABLES or not base.__module__.startswith(_PACKAGE)]
    known = {name for base in others for name in getattr(base, "_traits", {})}
    return {name: trait for name, trait in sorted(cls.class_traits(config=True).items()) if name not in known}


def _class_text(cls: type[HasTraits]) -> str:
    return named(inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0])


def _trait(cls: type[HasTraits], name: str, trait: TraitType[Any, Any]) -> str:
    setting = code(f"c.{cls.__name__}.{name}")
    return section(
        3,
        code(name),
        f"{setting}: {kind_of(trait)}; default: {default_of(cls, name, trait)}.",
        named(inspect.cleandoc(trait.help)),
    )


def kind_of(trait: TraitType[Any, Any]) -> str:
    """Return what a setting may be. traitlets' own words differ between its versions.

    Raises
    ------
    KeyError
        For a type that has no words yet.
    """
    if isinstance(trait, Enum):
        return "one of " + ", ".join(code(repr(value)) for value in trait.values or ())
    if isinstance(trait, Union):
        return " or ".join(kind_of(choice) for choice in trait.trait_types)
    for kind, words in _KINDS.items():
        if isinstance(trait, kind):
            return words
    raise KeyError(type(trait).__name__)


def default_of(cls: type[HasTraits], name: str, trait: TraitType[Any, Any]) -> str:
    """Return a setting's default, or that it depends on the machine."""
    if _has_a_maker(cls, name):
        return "depends on the machine"
    value = trait.default()
    return code(f"{value:.0f}" if isinstance(value, float) and value.is_integer() else trait.default_value_repr())


def _has_a_maker(cls: type[HasTraits], name: str) -> bool:
    members = {key: value for base in cls.__mro__ for key, value in vars(base).items()}
    handlers = {value.trait_name for value in members.values() if isinstance(value, DefaultHandler)}
    return name in handlers or f"_default_{name}" in members or f"_{name}_default" in members
