"""The settings, from the traits of what can be configured."""

from __future__ import annotations

import inspect
from typing import Any

from traitlets import DefaultHandler, HasTraits, TraitType

from jupyter_exec_ext.aca.provisioner import ACAProvisioner
from jupyter_exec_ext.engine.engine import ExecEngine
from jupyter_exec_ext.forkserver import ForkServerProvisioner
from jupyter_exec_ext.gateway import ExecPersonality
from jupyter_exec_ext.isolation.common.isolated_provisioner import IsolatedProvisioner
from jupyter_exec_ext.isolation.sandbox.sandbox_provisioner import SandboxProvisioner
from jupyter_exec_ext.server.extension_app import ExecExtensionApp
from jupyter_exec_ext.store.store import ExecStore

from .markdown import code, prose, section

CONFIGURABLES: tuple[type[HasTraits], ...] = (
    ExecEngine,
    ExecStore,
    ExecExtensionApp,
    ExecPersonality,
    IsolatedProvisioner,
    SandboxProvisioner,
    ForkServerProvisioner,
    ACAProvisioner,
)
_PACKAGE = "jupyter_exec_ext"


def traits() -> str:
    """Return a section for each class that can be configured, and one for each of its settings."""
    return "".join(
        section(2, code(cls.__name__), _class_text(cls))
        + "".join(_trait(cls, *item) for item in own_traits(cls).items())
        for cls in CONFIGURABLES
    )


def own_traits(cls: type[HasTraits]) -> dict[str, TraitType[Any, Any]]:
    """Return the settings of ours that no other class of the table has already."""
    others = [base for base in cls.__mro__[1:] if base in CONFIGURABLES or not base.__module__.startswith(_PACKAGE)]
    known = {name for base in others for name in getattr(base, "_traits", {})}
    return {name: trait for name, trait in sorted(cls.class_traits(config=True).items()) if name not in known}


def _class_text(cls: type[HasTraits]) -> str:
    return prose(inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0])


def _trait(cls: type[HasTraits], name: str, trait: TraitType[Any, Any]) -> str:
    setting = code(f"c.{cls.__name__}.{name}")
    return section(
        3,
        code(name),
        f"{setting}: {prose(trait.info())}; default: {default_of(cls, name, trait)}.",
        prose(inspect.cleandoc(trait.help)),
    )


def default_of(cls: type[HasTraits], name: str, trait: TraitType[Any, Any]) -> str:
    """Return a setting's default, or that it depends on the machine."""
    return "worked out where it runs" if _has_a_maker(cls, name) else code(trait.default_value_repr())


def _has_a_maker(cls: type[HasTraits], name: str) -> bool:
    members = {key: value for base in cls.__mro__ for key, value in vars(base).items()}
    handlers = {value.trait_name for value in members.values() if isinstance(value, DefaultHandler)}
    return name in handlers or f"_default_{name}" in members or f"_{name}_default" in members
