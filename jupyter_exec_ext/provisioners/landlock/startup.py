"""Run by IPython when a kernel starts that Landlock holds: ``!command`` without a terminal, which it cannot have.

IPython runs commands in a terminal of their own. A new one cannot be told from those of others, so none can be opened.
"""


def _without_terminal() -> None:
    import signal
    import subprocess
    from typing import Any

    from IPython import get_ipython
    from IPython.utils.text import LSString, SList

    shell: Any = get_ipython()

    def run(command: str, depth: int, *, show: bool) -> str:
        """Run a command, and return what it says."""
        if command.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        said = ""
        with subprocess.Popen(  # noqa: S602  # what its user has typed is for a shell
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
                        said += line
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
        code = process.returncode
        shell.user_ns["_exit_code"] = 128 - code if code > 128 else code
        if code != 0 and getattr(shell, "system_raise_on_error", False):
            raise subprocess.CalledProcessError(code, command)
        return said

    def system(command: str) -> None:
        run(command, 0, show=True)

    def getoutput(command: str, split: bool = True, depth: int = 0) -> Any:
        said = run(command, depth, show=False)
        return SList(said.splitlines()) if split else LSString(said)

    shell.system, shell.getoutput = system, getoutput


_without_terminal()
del _without_terminal
