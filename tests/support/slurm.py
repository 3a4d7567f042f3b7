"""A Slurm cluster for tests: Debian's, with the controller on the host and a node on each machine of a network."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.hosts import free_port, stop
from tests.support.namespaces import Machine, Network, running_network
from tests.support.waiting import wait_until

_SECONDS = 60.0
#: Seconds between SIGTERM and SIGKILL at the end of a job; 30 by default.
KILL_WAIT_SECONDS = 30
#: A node that does not answer the controller for this long is down; 300 by default.
NODE_SILENT_SECONDS = 15
#: States of nodes that get jobs.
USABLE = {"idle", "mixed", "allocated"}
# The nodes claim more than they have, for the sizes of the recipe.
_CONFIGURATION = """
ClusterName=tests
SlurmctldHost=localhost({host})
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={home}/munge.socket
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={home}
SlurmdSpoolDir={home}/%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/%n.pid
PlugStackConfig=/dev/null
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SlurmdTimeout={silent}
ReturnToService=1
KillWait={kill_wait}
{nodes}
PartitionName=agents Nodes=ALL Default=YES LLN=YES
"""
_NODE = "NodeName={name} NodeAddr={address} CPUs=64 RealMemory=262144"


@dataclass(frozen=True)
class SlurmCluster:
    """A cluster whose nodes are the machines of a network."""

    network: Network
    home: Path

    @property
    def configuration(self) -> Path:
        """Its ``slurm.conf``, which programs of Slurm find by ``SLURM_CONF``."""
        return self.home / "slurm.conf"

    def run(self, *command: str) -> str:
        """Run a program of Slurm's and return its output."""
        environment = {**os.environ, "SLURM_CONF": str(self.configuration)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def machine(self, name: str) -> Machine:
        """Return a node by its name."""
        return next(machine for machine in self.network.machines if machine.name == name)

    def jobs(self) -> list[str]:
        """Return the jobs that wait, run, or are about to end."""
        return self.run("squeue", "--noheader", "--format=%i").split()

    def state_of_job(self, job: str) -> str:
        """Return the state of a job, such as ``RUNNING``; empty once it is over."""
        return self.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()

    def node_of(self, job: str) -> Machine:
        """Return the node that a job runs on."""
        return self.machine(self.run("squeue", "--noheader", f"--jobs={job}", "--format=%B").strip())

    def state_of(self, node: Machine) -> str:
        """Return the state of a node, such as ``mixed``, ``draining`` or ``down*``; see `USABLE`."""
        return self.run("sinfo", "--noheader", f"--nodes={node.name}", "--format=%T").strip()

    def set_state(self, node: Machine, state: str) -> None:
        """Set the state of a node: ``drain`` or ``resume``."""
        self.run("scontrol", "update", f"NodeName={node.name}", f"State={state}", "Reason=test")


@contextmanager
def running_cluster(home: Path, names: Sequence[str]) -> Iterator[SlurmCluster]:
    """Start machines with these names as the nodes of a cluster, and end everything at the end."""
    key = home / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    with running_network(home, names) as network, ExitStack() as stack:
        cluster = SlurmCluster(network, home)
        nodes = "\n".join(_NODE.format(name=each.name, address=each.address) for each in network.machines)
        ports = {"controller_port": free_port(), "node_port": free_port()}
        waits = {"silent": NODE_SILENT_SECONDS, "kill_wait": KILL_WAIT_SECONDS}
        cluster.configuration.write_text(
            _CONFIGURATION.format(host=network.host, home=home, nodes=nodes, **ports, **waits)
        )
        socket = home / "munge.socket"
        files = [f"--{name}-file={home / f'munge.{name}'}" for name in ("key", "pid", "log", "seed")]
        _start(stack, home / "munged.log", "munged", "--foreground", "--force", f"--socket={socket}", *files)
        wait_until(socket.exists, _SECONDS)
        configuration = ["-D", "-f", str(cluster.configuration)]
        _start(stack, home / "slurmctld.log", "slurmctld", *configuration)
        for machine in network.machines:
            command = machine.command("slurmd", "-N", machine.name, *configuration)
            _start(stack, home / f"{machine.name}.log", *command)
            stack.callback(machine.kill_all)
        wait_until(lambda: all(cluster.state_of(machine) in USABLE for machine in network.machines), _SECONDS)
        yield cluster


def _start(stack: ExitStack, log: Path, *words: str) -> None:
    command = ["setpriv", "--pdeathsig", "KILL", *words]  # it ends with the tests
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
    stack.callback(stop, process)
