"""Examples in the help of each command and action, by the words that lead to it."""

from __future__ import annotations

import argparse

from .command_parser import walk_commands

#: Lines without ``jupyter exec``. A test parses each of them.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "run script.py",
        "run -c 'print(1)' --server auto --timeout 30s",
        "run -c 'x += 1' --session analysis",
        "run script.py --docker",
    ),
    "mcp": (
        "mcp --server http://127.0.0.1:8888/ --token-file agent.token",
        "mcp --print-config claude-code --server lab",
        "mcp --print-config codex --stdio --server lab",
    ),
    "session": ("session start --name analysis", "session list"),
    "session list": ("session list", "session list --ended --json"),
    "session start": ("session start --name analysis --idle-timeout 2h", "session start --isolation sandbox"),
    "session stop": ("session stop analysis", "session stop ses_4f ses_a1"),
    "session port": ("session port analysis 8501", "session port analysis 8501 --close"),
    "session install": ("session install analysis 'pandas==2.2' seaborn",),
    "session checkpoint": ("session checkpoint analysis cleaned",),
    "session checkpoints": ("session checkpoints analysis",),
    "session restore": ("session restore analysis cleaned", "session restore analysis chk_4f --same-random"),
    "session branch": ("session branch analysis --count 3", "session branch analysis --checkpoint cleaned"),
    "session delete-checkpoint": ("session delete-checkpoint analysis cleaned",),
    "session network": ("session network analysis", "session network analysis --allow api.example.com"),
    "session interrupt": ("session interrupt analysis",),
    "execution": ("execution list analysis", "execution search KeyError"),
    "execution list": ("execution list analysis", "execution list analysis -n 20 --json"),
    "execution search": ("execution search KeyError", "execution search 'read_csv(' -n 200 --json"),
    "file": ("file upload analysis data.csv", "file list analysis"),
    "file list": ("file list analysis", "file list analysis --path results --sha256"),
    "file upload": ("file upload analysis data.csv", "file upload analysis data.csv in/data.csv"),
    "file download": ("file download analysis results/plot.png", "file download analysis plot.png pictures"),
    "file delete": ("file delete analysis data.csv results/plot.png",),
    "output": ("output list exe_4f", "output download exe_4f stdout"),
    "output list": ("output list exe_4f",),
    "output download": ("output download exe_4f stdout", "output download exe_4f stderr errors.txt"),
    "token": ("token create claude --expires 8h", "token list"),
    "token create": (
        "token create claude --expires 8h",
        "token create ci --scope reader --output token",
        "token create claude --policy restricted --limit max_sessions=1",
    ),
    "token list": ("token list", "token list --ended"),
    "token show": ("token show k3jm2x",),
    "token rotate": ("token rotate k3jm2x --overlap 1h --output token",),
    "token revoke": ("token revoke k3jm2x",),
    "token grant": ("token grant k3jm2x 7f3c1a52-91d4-4f0e-8a3b-5d2e6c7f8a90",),
    "token grants": ("token grants --ended",),
    "token policies": ("token policies",),
    "secret": ("secret set API_KEY --host api.example.com --header 'X-Key: {}'", "secret list"),
    "secret set": ("secret set API_KEY --host api.example.com --header 'X-Key: {}'", "secret set API_KEY"),
    "secret list": ("secret list", "secret list --json"),
    "secret delete": ("secret delete API_KEY",),
    "secret rotate-key": ("secret rotate-key",),
    "approve": ("approve watch",),
    "approve list": ("approve list",),
    "approve show": ("approve show exe_4f",),
    "approve accept": ("approve accept exe_4f", "approve accept exe_4f --edit --reason 'without the loop'"),
    "approve reject": ("approve reject exe_4f --reason 'it deletes files'",),
    "approve watch": ("approve watch",),
    "approve withdraw": ("approve withdraw analysis shell", "approve withdraw ses_4f"),
    "profile": ("profile add work --server https://hub.example/user/ada/", "session list --server work"),
    "profile add": ("profile add work --server https://hub.example/ --token-file token",),
    "profile list": ("profile list",),
    "profile remove": ("profile remove work",),
    "kernelspec": ("kernelspec install --sandbox", "kernelspec list"),
    "kernelspec install": (
        "kernelspec install --sandbox --read-only ~/data",
        "kernelspec install --sandbox --from ir --name lessons",
        "kernelspec install --fork --preload numpy pandas",
    ),
    "kernelspec list": ("kernelspec list",),
    "serve": ("serve --port 8888 --token-file token", "serve --gateway -- --KernelGatewayApp.max_kernels=10"),
    "pool": ("pool --config jupyter_exec_pool_config.py", "pool -- --ExecPool.max_servers=8"),
    "drain": ("drain http://127.0.0.1:8888/ --wait", "drain lab --undo", "drain --json"),
    "audit": ("audit verify", "audit tail --follow"),
    "audit verify": ("audit verify",),
    "audit tail": ("audit tail -n 50", "audit tail --follow --json"),
    "migrate": ("migrate src notebooks", "migrate src notebooks --write"),
    "doctor": ("doctor", "doctor --server auto"),
    "completion": ("completion bash > ~/.jupyter_exec.bash",),
}


def add_examples(parser: argparse.ArgumentParser) -> None:
    """Add the examples to the end of each command's help."""
    for path, command in walk_commands(parser):
        if lines := EXAMPLES.get(" ".join(path)):
            shown = "\n".join(f"  jupyter exec {line}" for line in lines)
            command.epilog = "\n\n".join(filter(None, [command.epilog, "Examples:", shown]))
