"""Machines for tests on one Linux host: namespaces with an address of their own each, on one bridge.

Each machine has its own network, processes, mounts, and host name; files are the host's. It needs root. A machine's
first process ends with the process that made it, and takes everything in the machine with it, so that nothing stays
behind but the bridge after a kill. The next network removes such a bridge.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.support.waiting import wait_until

_NAMESPACES = ("--net", "--pid", "--mount", "--uts")
_BRIDGE_PREFIX = "exec"
# The first process reaps orphans, and ends as soon as its standard input does.
_FIRST_PROCESS = """
import signal, socket, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
socket.sethostname(sys.argv[1])
subprocess.run(["mount", "--bind", sys.argv[2], "/etc/hosts"], check=True)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Machine:
    """One machine; plain data, so that another process can start something in it.

    Parameters
    ----------
    name : str
        Its host name, which all machines of the network resolve.
    address : str
        Its address.
    pid : int
        Its first process, as the host sees it.
    link : str
        The host's end of its cable.
    """

    name: str
    address: str
    pid: int
    link: str

    def command(self, *command: str, directory: str | Path = "/") -> list[str]:
        """Return the command that runs a command in the machine, as a child of `nsenter`."""
        return ["nsenter", f"--target={self.pid}", *_NAMESPACES, f"--wdns={directory}", "--", *command]

    def start(self, command: Sequence[str], directory: str | Path = "/", **options: Any) -> subprocess.Popen[bytes]:
        """Start a process in the machine; `options` are those of Popen. See also `process_in`."""
        return subprocess.Popen(self.command(*command, directory=directory), **{"stdin": subprocess.DEVNULL, **options})

    def run(self, *command: str) -> str:
        """Run a command in the machine and return its output."""
        done = subprocess.run(self.command(*command), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def cut(self) -> None:
        """Cut the machine off the network: what is sent to it or by it is lost without an answer."""
        _ip("link", "set", self.link, "down")

    def join(self) -> None:
        """Connect the machine again."""
        _ip("link", "set", self.link, "up")

    def processes(self) -> list[psutil.Process]:
        """Return the processes in the machine, without its first one and those in sandboxes, which end with others."""
        found, own = [], os.readlink(f"/proc/{self.pid}/ns/pid")
        for process in psutil.process_iter():
            with suppress(OSError, psutil.Error):
                if process.pid != self.pid and os.readlink(f"/proc/{process.pid}/ns/pid") == own:
                    found.append(process)
        return found

    def kill_all(self) -> None:
        """Kill all processes in the machine; it stays, as after a restart."""
        while found := self.processes():
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(found, timeout=10)


@dataclass(frozen=True)
class Network:
    """Machines on a bridge, and the host's own address there, which they know as ``hub``."""

    host: str
    machines: list[Machine]

    def to_json(self) -> str:
        """Return the network for `from_json` in another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Network:
        """Return the network that `to_json` has written."""
        known = json.loads(text)
        return cls(known["host"], [Machine(**machine) for machine in known["machines"]])


@contextmanager
def running_network(home: Path, names: Sequence[str]) -> Iterator[Network]:
    """Start machines with these names, and end everything in them at the end; `home` is for their ``/etc/hosts``."""
    _remove_orphaned_bridges()
    bridge, subnet = f"{_BRIDGE_PREFIX}{os.getpid()}", _free_subnet()
    addresses = {name: f"{subnet}.{number}" for number, name in enumerate(("hub", *names), 1)}
    hosts = home / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in addresses.items()))
    with ExitStack() as stack:
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "delete", bridge)
        _ip("address", "add", f"{addresses['hub']}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        machines = []
        for number, name in enumerate(names):
            pid = stack.enter_context(_running_first_process(name, hosts))
            machine = Machine(name, addresses[name], pid, f"{bridge}.{number}")
            _ip("link", "add", machine.link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
            # The kernel would remove it some time after the machine's end, and the next network has the same names.
            stack.callback(_delete_link, machine.link)
            _ip("link", "set", machine.link, "master", bridge, "up")
            machine.run("ip", "address", "add", f"{machine.address}/24", "dev", "eth0")
            machine.run("ip", "link", "set", "eth0", "up")
            machine.run("ip", "route", "add", "default", "via", addresses["hub"])
            machines.append(machine)
        yield Network(addresses["hub"], machines)


@contextmanager
def _running_first_process(name: str, hosts: Path) -> Iterator[int]:
    flags = [*_NAMESPACES, "--fork", "--mount-proc", "--kill-child"]
    command = ["unshare", *flags, sys.executable, "-c", _FIRST_PROCESS, name, str(hosts)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", f"the machine {name} did not start"
            yield process_in(process).pid
        finally:
            process.kill()


def process_in(started: subprocess.Popen[bytes]) -> psutil.Process:
    """Return the process that `Machine.start` has started; the one of Popen waits for it and ends with it."""
    parent = psutil.Process(started.pid)
    wait_until(lambda: parent.children() or started.poll() is not None)
    return parent.children()[0]


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, (words, done.stderr)


def _free_subnet() -> str:
    used = {address.address.rpartition(".")[0] for addresses in psutil.net_if_addrs().values() for address in addresses}
    while (subnet := f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(256)}") in used:
        pass
    return subnet


def _delete_link(name: str) -> None:
    """Delete a link of a machine, which went with the machine if that has ended before."""
    try:
        _ip("link", "delete", name)
    except AssertionError:
        if name in psutil.net_if_addrs():
            raise


def _remove_orphaned_bridges() -> None:
    for name in psutil.net_if_addrs():
        pid = name.removeprefix(_BRIDGE_PREFIX)
        if name != pid and pid.isdecimal() and not psutil.pid_exists(int(pid)):
            _ip("link", "delete", name)
