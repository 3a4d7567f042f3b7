"""What AutoGen's executors answer, with the files that were saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from autogen_core.code_executor import CodeResult


@dataclass
class JupyterCodeResult(CodeResult):
    """What running code blocks gave.

    Parameters
    ----------
    exit_code : int
        0 if all of them ran to their end without an error, 1 otherwise.
    output : str
        Their text output, including what came before an error, and the error.
    output_files : list of Path
        Absolute paths of the images and pages that were displayed and saved.
    """

    output_files: list[Path] = field(default_factory=list)
