"""List of what our kernels replace in ipykernel and IPython at run time, each with its reason.

No class of a live object is ever changed. `tests/in_kernel/test_replacements.py` compares the list with kernels of the
newest and the oldest ipykernel that is supported. ``docs/contributing/decisions.md`` has what was removed.
"""

from __future__ import annotations

#: Attributes that are replaced, by the object that has them; each with the file that does it, and why.
REPLACED = {
    "stdout.write": ("bounded_output", "prints in parts that wait for slow readers, so that a flood takes no memory"),
    "stderr.write": ("bounded_output", "the same"),
    "shell._tee": ("bounded_output", "keeps only the beginning of a cell's text for %notebook, which has no bound"),
    "session.pack": ("defaults", "sends text with lone surrogates, which jupyter_client refuses"),
    "display_pub.publish": ("defaults", "adds a picture to a plot that is shown as data alone"),
    "display_formatter.format": ("defaults", "adds a picture to a plot that is a cell's value"),
    "shell.exiter": ("unattended", "exit() ends the code, not the kernel"),
    "shell.showtraceback": ("unattended", "shows exits as a script would, without advice for a person"),
    "interactiveshell.warn": ("unattended", "drops IPython's advice on how to exit"),
    "shell.run_cell_magic": ("unattended", "ends a %%bash cell with its shell, not with its background processes"),
    "stdout.fileno": ("unattended", "names the descriptor from which ipykernel reads, not its copy"),
    "stderr.fileno": ("unattended", "the same"),
}
#: Configuration that is set, which ipykernel and IPython offer for that.
CONFIGURED = {
    "kernel._execute_sleep": ("bounded_output", "no sleep after each cell: our readers wait for `idle`"),
    "history_manager.db_cache_size": ("bounded_output", "the history is written in batches"),
}
