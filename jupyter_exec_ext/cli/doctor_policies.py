"""Doctor's check of the policies in the configuration of this machine's Jupyter Server."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_core.application import JupyterApp
from traitlets import TraitError
from traitlets.config import Config

from ..engine.settings import EngineSettings, configured_policies
from ..errors import PoliciesInvalid
from .doctor_command import Finding

_REMEDY = "correct it; until then, servers with this configuration run no code and answer 503"


def policies_here() -> Iterator[Finding]:
    """Report a mistake in the policies of the configuration files that a Jupyter Server reads."""
    app = JupyterApp(config_file_name="jupyter_server_config")
    app.load_config_file()
    section = app.config.ExecEngine
    if not section:
        return
    try:
        settings = EngineSettings(config=Config(EngineSettings=section))
        configured_policies(settings.policies, settings.policy_file, settings.offered_policies)
    except TraitError as error:
        yield Finding(f"Jupyter's configuration has a mistake: {error}", "correct the file")
    except PoliciesInvalid as error:
        yield Finding(f"the policies have a mistake: {error.message}", _REMEDY)
    else:
        yield Finding("the policies are valid")
