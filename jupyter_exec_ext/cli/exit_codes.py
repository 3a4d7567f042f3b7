"""Exit codes of ``jupyter exec``; `run_exit_code` chooses that of code which has run."""

from __future__ import annotations

EXIT_USAGE = 2  # as argparse has it
EXIT_SERVER_FAILED = 3
EXIT_TIMEOUT = 124  # as timeout(1) has it
EXIT_REJECTED = 126  # as shells have it for a command that may not run
# Shells report 128 and the number of a signal: SIGINT (2) and SIGPIPE (13).
EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 130, 141
