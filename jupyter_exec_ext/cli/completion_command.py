"""``jupyter exec completion``: prints the script with which a shell completes commands and options."""

from __future__ import annotations

import argparse
from typing import Any

from .common_options import add_command

_COMPLETION = """\
Print a script that makes a shell complete commands, options and their values,
for 'jupyter exec' and 'jupyter-exec'. It is made for this version: print it
again after an upgrade.

Write it to a file, and source that file where your shell starts:

  bash    jupyter exec completion bash > ~/.jupyter_exec.bash
          echo 'source ~/.jupyter_exec.bash' >> ~/.bashrc
  zsh     jupyter exec completion zsh > ~/.jupyter_exec.zsh
          echo 'source ~/.jupyter_exec.zsh' >> ~/.zshrc    (after compinit)
  fish    jupyter exec completion fish > ~/.config/fish/conf.d/jupyter_exec.fish
"""


def add_completion_command(commands: Any) -> None:
    """Add ``jupyter exec completion``."""
    parser = add_command(commands, "completion", "print a script for tab completion in your shell", print_completion)
    parser.description = _COMPLETION
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell")


def print_completion(args: argparse.Namespace) -> int:
    """Print the script."""
    # The parser of all commands imports this module.
    from .main import build_parser
    from .shell_completion import completion_script

    print(completion_script(build_parser(), args.shell), end="")
    return 0
