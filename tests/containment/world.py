"""What there is outside of a kernel's sandbox, planted, so that attacks can do no harm and their effects are seen.

Everything belongs to the user that the server and its kernels share. Secrets are random texts; probes are told only
their digests. Whoever changes something leaves a mark, another random text that is handed to one probe only.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import tty
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tests.containment import inside
from tests.containment.inside import Facts
from tests.containment.plain import as_user

if TYPE_CHECKING:
    from typing_extensions import Self

_KINDS = (
    "environ", "runtime", "cookie", "connection", "memory", "process", "banner", "abstract", "tmp", "vartmp", "shm",
    "file", "sibling", "unlinked", "directory", "descriptor", "shared", "message", "key",
)  # fmt: skip
# Variables in which servers have credentials; all get the same secret.
_CREDENTIALS = (
    "JUPYTER_TOKEN",
    "KG_AUTH_TOKEN",
    "JUPYTERHUB_API_TOKEN",
    "JPY_API_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "OPENAI_API_KEY",
    "EXEC_TEST_SECRET",
)
_KEYRING_OF_SESSION = -3
_KEYCTL_UNLINK = 9
_ANSWER_SECONDS = 15.0
_END_SECONDS = 5.0
_MOST_BYTES = 4 << 20
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run", "/")
_BYSTANDER = (Path(__file__).parent / "bystander.py").read_text()


class World:
    """The outside, for the time of the ``with``.

    Parameters
    ----------
    work : Path or None
        The directory that the kernel may write to, if whoever starts the kernel has made it already; it is theirs to
        remove. By default it is one of the world's own.
    user : int or None
        Who the server and its kernels run as, if the tests run as root; else they are the tests' own user.

    Attributes
    ----------
    facts : dict
        What the probes are told, ready for JSON.
    work : Path
        The directory that the kernel may write to.
    descriptors : tuple of int
        Descriptors of this process that a careless launcher would hand down; they are inheritable.
    """

    def __init__(self, work: Path | None = None, *, user: int | None = None) -> None:
        self.user = os.geteuid() if user is None else user
        self.root = Path(tempfile.mkdtemp(prefix="world-"))
        self.home = self.root / "home"
        self.work = work or self.root / "sessions" / "ours" / "work"
        self.theirs = self.root / "sessions" / "theirs"
        self.facts: Facts = {}
        self.descriptors: tuple[int, ...] = ()
        self._secrets = {kind: f"canary-{kind}-{secrets.token_hex(16)}" for kind in _KINDS}
        self._open = contextlib.ExitStack()
        self._bystander: subprocess.Popen[str] | None = None
        self._terminal: tuple[int, int] | None = None
        self._baseline: dict[str, Any] = {}

    def __enter__(self) -> Self:
        try:
            self._open.callback(shutil.rmtree, self.root, ignore_errors=True)
            self._plant()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def environment(self) -> dict[str, str]:
        """What a server that knows nothing of sandboxes hands down to its kernels."""
        kept = {k: v for k, v in os.environ.items() if k not in ("IPYTHONDIR", "PYTHONPATH")}
        data = self.home / ".local" / "share" / "jupyter"
        return kept | {
            "HOME": str(self.home),
            "JUPYTER_RUNTIME_DIR": str(data / "runtime"),
            "JUPYTER_DATA_DIR": str(data),
            "JUPYTER_CONFIG_DIR": str(self.home / ".jupyter"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    # --- What has happened

    def effects(self, mark: str) -> list[str]:
        """Return what has been done to the world since this was last asked; `mark` is who to look for."""
        told = self._report()
        if told is None:
            return ["the server answers no more"]
        effects = [f"the server received {text!r}" for text in told["received"] if mark in text]
        effects += ["the server was signalled"] * bool(told["signals"])
        effects += ["the server's memory was written to"] * (mark in told["scratch"])
        effects += [f"there is {path}" for path in self._marked(mark)]
        effects += ["something was typed or shown on a terminal"] * self._typed(mark)
        return effects + self._changed()

    def left_behind(self, mark: str) -> list[int]:
        """Return the processes that are there after the kernel's end, and end them."""
        until = time.monotonic() + _END_SECONDS
        while (left := _processes_with(mark)) and time.monotonic() < until:
            time.sleep(0.05)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def _report(self) -> dict[str, Any] | None:
        assert self._bystander is not None
        assert self._bystander.stdin is not None
        try:
            self._bystander.stdin.write("report\n")
            self._bystander.stdin.flush()
            return self._answer()
        except (BrokenPipeError, EOFError, TimeoutError):
            return None

    def _answer(self) -> dict[str, Any]:
        assert self._bystander is not None
        assert self._bystander.stdout is not None
        if not select.select([self._bystander.stdout], [], [], _ANSWER_SECONDS)[0]:
            raise TimeoutError("the process that is attacked does not answer")
        line = self._bystander.stdout.readline()
        if not line:
            raise EOFError("the process that is attacked has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _marked(self, mark: str) -> list[str]:
        """Return the files outside that have the mark in name or content, and remove them."""
        places = [*self._files(), *(Path(top) / name for top in _SHARED for name in _names(top))]
        seen = [path for path in places if mark in path.name or _has(path, mark)]
        seen += [path for path in _names_below(self.work) if mark in path.name and _sets_user(path)]
        for path in seen:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return [str(path) for path in seen]

    def _files(self) -> list[Path]:
        planted = [self.root, *(Path(self.facts["files"][kind]).parent for kind in ("tmp", "vartmp", "shm"))]
        return [path for top in planted for path in _names_below(top) if not path.is_relative_to(self.work)]

    def _typed(self, mark: str) -> bool:
        """Whether the mark was typed into the terminal, or shown on it."""
        if self._terminal is None:
            return False
        seen = b""
        for descriptor in self._terminal:
            while select.select([descriptor], [], [], 0)[0]:
                seen += os.read(descriptor, 4096)
        return mark.encode() in seen

    def _changed(self) -> list[str]:
        """Return in what the server and what everybody shares differ from what they were when last looked at."""
        now = self._state()
        before, self._baseline = self._baseline, now
        changes = [f"{name} changed" for name in now if now[name] != before[name]]
        if not self._removable.exists():
            changes.append("a file of another session was removed")
            self._write(self._removable, "")
        return changes

    def _state(self) -> dict[str, Any]:
        pid = self.facts["server"]
        state: dict[str, Any] = {
            "the server's limits": Path(f"/proc/{pid}/limits").read_text(),
            "the server's rank when memory is short": Path(f"/proc/{pid}/oom_score_adj").read_text(),
            "the server's priority": os.getpriority(os.PRIO_PROCESS, pid),
            "the host's name": socket.gethostname(),
        }
        for name in _DEVICES:
            with contextlib.suppress(OSError):
                state[f"/dev/{name}"] = os.stat(f"/dev/{name}").st_ctime_ns
        return state

    # --- What is planted

    def _plant(self) -> None:
        self.root.chmod(0o711)
        runtime = self.home / ".local" / "share" / "jupyter" / "runtime"
        files = {
            "file": self.root / "outside" / "secret",
            "runtime": runtime / f"jpserver-{os.getpid()}.json",
            "cookie": runtime / "jupyter_cookie_secret",
            "connection": self.theirs / "kernel-5d1a.json",
            "sibling": self.theirs / "work" / "secret",
            "directory": self.root / "directory" / "secret-of-the-directory",
            "unlinked": self.root / "outside" / "unlinked",
            "descriptor": self.root / "outside" / "descriptor",
        }
        for kind, top in (("tmp", "/tmp"), ("vartmp", "/var/tmp"), ("shm", "/dev/shm")):
            files[kind] = Path(tempfile.mkdtemp(prefix="canary-", dir=top)) / "secret"
            self._open.callback(shutil.rmtree, files[kind].parent, ignore_errors=True)
        for kind, path in files.items():
            self._write(path, self._secrets[kind])
        self._removable = self.theirs / "work" / "removable"
        self._write(self._removable, "")
        for directory in (self.work, self.home / ".jupyter", self.root / "python" / "site-packages"):
            directory.mkdir(parents=True, exist_ok=True)
        self._write(self.root / "python" / "site-packages" / "module.py", "")
        self._write(runtime / "kernel-77aa.json", json.dumps({"key": self._secrets["connection"]}))
        self._write(files["runtime"], json.dumps({"token": self._secrets["runtime"]}))
        self._write(files["connection"], json.dumps({"key": self._secrets["connection"]}))
        self._give_away()
        self._plant_environment()
        sockets = [self.root / "control.sock", self.theirs / "k-1", self.root / "agent.sock"]
        self.facts = {
            "digests": {kind: hashlib.sha256(text.encode()).hexdigest() for kind, text in self._secrets.items()},
            "root": str(self.root),
            "home": str(self.home),
            "theirs": str(self.theirs),
            "removable": str(self._removable),
            "files": {kind: str(path) for kind, path in files.items()},
            "sockets": [str(path) for path in sockets],
            "abstract": f"service-{secrets.token_hex(8)}",
            "datagrams": f"datagrams-{secrets.token_hex(8)}",
            "uts": os.readlink("/proc/self/ns/uts"),
            "python": str(self.root / "python" / "site-packages"),
            "python_copy": str(self.root / "python" / "site-packages" / "module.py"),
            "devices": {path: os.stat(path).st_dev for path in _real_directories()},
            "homes": _identities({os.path.expanduser("~"), os.path.expanduser("~root")}),
            "interfaces": [name for _, name in socket.if_nameindex() if name != "lo"],
            "block_devices": _block_devices(),
            "handle": _handle(files["file"]),
            "queue": f"/canary-{secrets.token_hex(8)}",
        }
        self._start_bystander(files, sockets)
        self._plant_key()
        self._plant_terminal()
        self._plant_set_user_program()
        self._plant_descriptors(files["descriptor"])
        self._baseline = self._state()

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(path.parent, self.user, -1)
            os.chown(path, self.user, -1)

    def _give_away(self) -> None:
        """Let everything belong to the server's user."""
        if os.geteuid() != 0:
            return
        for path in (self.root, self.work, *_names_below(self.root)):
            os.chown(path, self.user, -1)

    def _plant_environment(self) -> None:
        for name in (*_CREDENTIALS, "SSH_AUTH_SOCK"):
            self._open.callback(_restore, name, os.environ.get(name))
            os.environ[name] = self._secrets["environ"]
        os.environ["SSH_AUTH_SOCK"] = str(self.root / "agent.sock")

    def _start_bystander(self, files: dict[str, Path], sockets: list[Path]) -> None:
        command = as_user([sys.executable, "-c", _BYSTANDER, self._secrets["process"]], self.user)
        self._bystander = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._open.callback(self._stop_bystander)
        assert self._bystander.stdin is not None
        told = {kind: self._secrets[kind] for kind in ("banner", "memory", "shared", "message")} | {
            "abstract": [self.facts["abstract"], self._secrets["abstract"]],
            "datagrams": self.facts["datagrams"],
            "sockets": [str(path) for path in sockets],
            "unlinked": str(files["unlinked"]),
            "directory": str(files["directory"].parent),
            "shared_key": secrets.randbelow(1 << 30) + 1,
            "queue": self.facts["queue"],
        }
        self._bystander.stdin.write(json.dumps(told) + "\n")
        self._bystander.stdin.flush()
        self.facts |= self._answer()

    def _stop_bystander(self) -> None:
        assert self._bystander is not None
        assert self._bystander.stdin is not None
        assert self._bystander.stdout is not None
        with contextlib.suppress(OSError):
            self._bystander.stdin.close()
        try:
            self._bystander.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._bystander.kill()
            self._bystander.wait()
        self._bystander.stdout.close()

    def _plant_key(self) -> None:
        """Put a secret into the keyring that processes inherit, where the system has one."""
        name, secret = f"canary-{secrets.token_hex(8)}".encode(), self._secrets["key"].encode()
        self.facts["key"] = None
        with contextlib.suppress(OSError):
            key = inside.syscall("add_key", b"user", name, secret, len(secret), _KEYRING_OF_SESSION)
            self._open.callback(inside.syscall, "keyctl", _KEYCTL_UNLINK, key, _KEYRING_OF_SESSION)
            self.facts["key"] = name.decode()

    def _plant_terminal(self) -> None:
        """Open a terminal that belongs to the server's user, as the one the server was started from."""
        self.facts["terminal"] = None
        with contextlib.suppress(OSError):
            front, back = os.openpty()
            self._open.callback(os.close, front)
            self._open.callback(os.close, back)
            tty.setraw(back)  # what is typed is there at once, and not shown again
            name = os.ttyname(back)
            if os.geteuid() == 0:
                os.chown(name, self.user, -1)
            self._terminal = (front, back)
            self.facts["terminal"] = name

    def _plant_set_user_program(self) -> None:
        """As root, leave a program in the directory of the kernel that runs as root, whoever starts it."""
        self.facts["set_user_program"] = None
        sleep = shutil.which("sleep")
        if os.geteuid() == 0 and sleep is not None:
            planted = self.work / "sleeper"
            shutil.copy(sleep, planted)
            self._open.callback(planted.unlink, missing_ok=True)
            planted.chmod(0o4755)
            self.facts["set_user_program"] = planted.name

    def _plant_descriptors(self, path: Path) -> None:
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(str(self.root / "control.sock"))
        self._open.callback(connected.close)
        opened = [os.open(path, os.O_RDONLY), os.open(self.root, os.O_RDONLY)]
        for descriptor in opened:
            self._open.callback(os.close, descriptor)
        path.unlink()  # so that it is to be had by its descriptor only
        self.descriptors = (*opened, connected.fileno())
        for descriptor in self.descriptors:
            os.set_inheritable(descriptor, True)
        self.facts["inherited_socket"] = os.fstat(connected.fileno()).st_ino


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _names_below(directory: Path) -> list[Path]:
    """Return everything in a directory, however deep; what comes and goes is left out."""
    return [Path(top) / name for top, folders, files in os.walk(directory) for name in (*folders, *files)]


def _has(path: Path, mark: str) -> bool:
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return path.is_symlink() and mark in os.readlink(path)
        # Only what was planted, and what is named after a probe, is opened: the shared directories hold others' files.
        if str(path.parent) in _SHARED:
            return False
        with path.open("rb") as file:
            return mark.encode() in file.read(_MOST_BYTES)
    except OSError:
        return False


def _sets_user(path: Path) -> bool:
    try:
        return bool(path.lstat().st_mode & stat.S_ISUID)
    except OSError:
        return False


def _processes_with(mark: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                    found.append(int(name))
    return found


def _real_directories() -> set[str]:
    """Return directories of the system and of this Python that no kernel may write to."""
    known = {"/usr", "/usr/bin", "/usr/lib", "/etc", "/opt", "/var", sys.prefix, sys.base_prefix}
    known |= {os.path.dirname(os.__file__), os.path.dirname(json.__file__), os.path.dirname(sys.executable)}
    known |= {path for path in sys.path if path.endswith("-packages")}
    return {path for path in known if os.path.isdir(path)}


def _identities(paths: set[str]) -> dict[str, tuple[int, int]]:
    return {path: (os.stat(path).st_dev, os.stat(path).st_ino) for path in paths if os.path.isdir(path)}


def _block_devices() -> list[tuple[str, int, int]]:
    """Return the disks and partitions of this machine."""
    try:
        lines = [line.split() for line in Path("/proc/partitions").read_text().splitlines()[2:]]
    except OSError:
        return []
    return [(name, int(major), int(minor)) for major, minor, _, name in lines]


def _handle(path: Path) -> dict[str, Any] | None:
    """Return by which number the file system knows a file."""
    raw = ctypes.create_string_buffer(8 + 128)
    ctypes.memmove(raw, (128).to_bytes(4, sys.byteorder), 4)
    mount = ctypes.c_int()
    at_fdcwd = -100
    if ctypes.CDLL(None).name_to_handle_at(at_fdcwd, os.fsencode(path), raw, ctypes.byref(mount), 0):
        return None
    return {"handle": raw.raw.hex()}
