"""Startup file of IPython in a kernel under Landlock: replaces two things that the kernel cannot do there.

- IPython runs ``!command`` in a new terminal. Landlock cannot tell it from the terminals of others, so the kernel can
  open none: commands run without one.
- The kernel finds its children, to end them with itself, in the list of all processes, which it cannot read. Its keeper
  ends them.
"""


def _without_terminal() -> None:
    import signal
    import subprocess
    from typing import Any

    from IPython import get_ipython
    from IPython.utils.text import LSString, SList

    shell: Any = get_ipython()

    def run(command: str, depth: int, *, show: bool) -> str:
        """Run a command, and return its output."""
        # As IPython's own `system` has it, with the same words.
        if command.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        output = ""
        with subprocess.Popen(  # noqa: S602  # the user typed it for a shell
            # For the frames of `run` and its caller: names in the command are those of the cell.
            shell.var_expand(command, depth=depth + 2),
            shell=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                for line in process.stdout or ():
                    if show:
                        print(line, end="", flush=True)
                    else:
                        output += line
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
        code = process.returncode
        # IPython has negative signals there; a shell adds 128 to them.
        shell.user_ns["_exit_code"] = 128 - code if code > 128 else code
        if code != 0 and getattr(shell, "system_raise_on_error", False):
            raise subprocess.CalledProcessError(code, command)
        return output

    def system(command: str) -> None:
        run(command, 0, show=True)

    def getoutput(command: str, split: bool = True, depth: int = 0) -> Any:
        output = run(command, depth, show=False)
        return SList(output.splitlines()) if split else LSString(output)

    shell.system, shell.getoutput = system, getoutput


def _without_other_processes() -> None:
    from functools import wraps
    from typing import Any

    from ipykernel import kernelbase

    load = getattr(kernelbase, "_get_psutil", None)  # older versions import it at once

    def patch(psutil: Any) -> Any:
        plain = psutil and psutil.Process.children
        # ipykernel calls `_get_psutil` for each usage request, and one wrapper is enough.
        if plain and not hasattr(plain, "__wrapped__"):

            @wraps(plain)
            def children(self: Any, recursive: bool = False) -> list[Any]:
                try:
                    return list(plain(self, recursive))
                except (psutil.AccessDenied, PermissionError):
                    return []

            psutil.Process.children = children
        return psutil

    if load is None:
        patch(getattr(kernelbase, "psutil", None))
    else:
        kernelbase._get_psutil = lambda: patch(load())


_without_terminal()
_without_other_processes()
del _without_terminal, _without_other_processes
