"""Probes that each get past a reader of code who looks for names and words: what they are is told nowhere plainly.

A filter of code is advice, never protection. Each of these ends in one of two effects: the secret file outside is read,
or a marked file is written there.
"""

from __future__ import annotations

import base64
import builtins
import codecs
import concurrent.futures
import ctypes
import ctypes.util
import gc
import importlib
import importlib.util
import json
import linecache
import marshal
import mmap
import multiprocessing
import os
import pickle
import platform
import pty
import runpy
import select
import shutil
import site
import socket
import sqlite3
import subprocess
import sys
import threading
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.containment import inside
from tests.containment.inside import Facts, found, probe


def _secret(facts: Facts) -> str:
    """Return the path of the file that all of these are after."""
    return str(facts["files"]["file"])


def _outside(facts: Facts) -> str:
    """Return a path outside that only the owner of the mark writes to."""
    return f"{facts['root']}/outside/written-{facts['mark']}"


def _to_copy(facts: Facts) -> str:
    """Return a command for a shell that copies the secret to where it can be read, and leaves the mark outside."""
    return f"cat {_secret(facts)} > copied-{facts['mark']}; echo {facts['mark']} > {_outside(facts)}"


def _copied(facts: Facts) -> bool:
    name = f"copied-{facts['mark']}"
    try:
        return inside.steals(facts, name)
    finally:
        os.unlink(name)


# --- Python itself


@probe("bypass")
def attribute_by_a_composed_name(facts: Facts) -> bool:
    """A forbidden function by a name that stands nowhere."""
    return found(facts, getattr(builtins, "".join(["o", "p", "e", "n"]))(_secret(facts)).read())


@probe("bypass")
def builtins_by_subscript(facts: Facts) -> bool:
    """The functions of Python by way of a dictionary."""
    scope = globals()["__builtins__"]
    scope = scope if isinstance(scope, dict) else vars(scope)
    return found(facts, scope["nepo"[::-1]](_secret(facts)).read())


@probe("bypass")
def builtins_of_a_function(facts: Facts) -> bool:
    """The functions of Python from any function at hand."""
    return found(facts, probe.__globals__["__builtins__"]["open"](_secret(facts)).read())


@probe("bypass")
def subclasses_that_run_programs(facts: Facts) -> bool:
    """From an empty tuple to a shell."""
    empty: Any = ()
    for one in empty.__class__.__mro__[-1].__subclasses__():
        scope = getattr(getattr(one, "__init__", None), "__globals__", {})
        if "posix_spawn" in scope and "system" in scope:
            scope["system"](_to_copy(facts))
            return _copied(facts)
    raise AssertionError("no class knows a shell")


@probe("bypass")
def subclasses_that_are_files(facts: Facts) -> bool:
    """From a number to a file."""
    top: Any = (1).__class__.__base__
    waiting = list(top.__subclasses__())
    while waiting:
        one = waiting.pop()
        if one.__name__ == "FileIO":
            return found(facts, one(_secret(facts)).read())
        if "IO" in one.__name__:
            waiting += one.__subclasses__()
    raise AssertionError("no class is a file")


@probe("bypass")
def importer_found_among_subclasses(facts: Facts) -> bool:
    """Any module, without importing."""
    for one in object.__subclasses__():
        if one.__name__ == "BuiltinImporter":
            module = one.load_module("posix")  # type: ignore[attr-defined]
            return found(facts, module.read(module.open(_secret(facts), 0), 500))
    raise AssertionError("there is no importer")


@probe("bypass")
def module_by_a_composed_name(facts: Facts) -> bool:
    """Any module, by a name that stands nowhere."""
    module = importlib.import_module("".join(map(chr, (111, 115))))
    module.system(_to_copy(facts))
    return _copied(facts)


@probe("bypass")
def module_that_others_have_imported(facts: Facts) -> bool:
    """Any module, by those that imported it: no import is seen."""
    vars(shutil.os)["sys" + "tem"](_to_copy(facts))  # type: ignore[attr-defined]
    return _copied(facts)


@probe("bypass")
def module_loaded_from_its_file(facts: Facts) -> bool:
    """A new copy of a module, past whatever was done to the first."""
    spec = importlib.util.spec_from_file_location("copy_of_io", importlib.util.find_spec("fileinput").origin)  # type: ignore[union-attr]
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return found(facts, "".join(module.input([_secret(facts)])))


@probe("bypass")
def code_in_letters_that_only_look_different(facts: Facts) -> bool:
    """Names in letters that Python takes for the ordinary ones, and a search for words does not."""
    return found(facts, eval("ｏｐｅｎ(path).ｒｅａｄ()", {"path": _secret(facts)}))  # noqa: RUF001


@probe("bypass")
def code_in_base64(facts: Facts) -> bool:
    """Code that is text until it runs."""
    text = base64.b64decode("b3BlbihwYXRoKS5yZWFkKCk=").decode()
    return found(facts, eval(text, {"path": _secret(facts)}))


@probe("bypass")
def code_in_a_rotated_alphabet(facts: Facts) -> bool:
    """The same, with the oldest of ciphers."""
    scope = {"path": _secret(facts)}
    exec(codecs.decode("k = bcra(cngu).ernq()", "rot13"), scope)
    return found(facts, scope["x"])


@probe("bypass")
def code_in_another_encoding(facts: Facts) -> bool:
    """Code whose bytes mean something else than they show."""
    scope = {"path": _secret(facts)}
    exec(b"# coding: utf-7\nx = +AG8AcABlAG4-(path).read()", scope)
    return found(facts, scope["x"])


@probe("bypass")
def code_compiled_beforehand(facts: Facts) -> bool:
    """Code that has no text at all."""
    packed = marshal.dumps(compile("open(path).read()", "", "eval"))
    return found(facts, eval(marshal.loads(packed), {"path": _secret(facts)}))


@probe("bypass")
def code_object_with_other_constants(facts: Facts) -> bool:
    """A harmless function whose content is exchanged."""

    def harmless() -> Any:
        answer: Any = repr("nothing")
        return answer.x

    code = harmless.__code__.replace(
        co_names=tuple({"repr": "open", "x": "name"}[name] for name in harmless.__code__.co_names),
        co_consts=tuple(_secret(facts) if one == "nothing" else one for one in harmless.__code__.co_consts),
    )
    opened = types.FunctionType(code, {"open": lambda path: types.SimpleNamespace(name=Path(path).read_text())})()
    return found(facts, opened)


@probe("bypass")
def object_that_acts_when_unpacked(facts: Facts) -> bool:
    """Data that runs a program when it is loaded."""
    command = _to_copy(facts).encode()
    pickle.loads(b"cposix\nsystem\n(V" + command + b"\ntR.")
    return _copied(facts)


class _Reduces:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return getattr, (Path(self._path), "read_text")


@probe("bypass")
def object_that_reads_when_unpacked(facts: Facts) -> bool:
    """The same, with nothing but Python."""
    return found(facts, pickle.loads(pickle.dumps(_Reduces(_secret(facts))))())


@probe("bypass")
def printer_of_the_licence(facts: Facts) -> bool:
    """A file shown by something that every Python has for another purpose."""
    printer = vars(builtins)["license"].__class__("licence", "", [os.path.basename(_secret(facts))], ["/"])
    printer._Printer__filenames = [_secret(facts)]
    printer._Printer__setup()
    return found(facts, "\n".join(printer._Printer__lines))


@probe("bypass")
def lines_for_tracebacks(facts: Facts) -> bool:
    """A file read as the source of an error."""
    linecache.clearcache()
    return found(facts, "".join(linecache.getlines(_secret(facts))))


@probe("bypass")
def attribute_of_an_error(facts: Facts) -> bool:
    """The scope of another function, by the trace of an error in it."""
    try:
        json.loads("{")
    except ValueError as error:
        trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    return found(facts, trace.tb_frame.f_builtins["open"](_secret(facts)).read())


@probe("bypass")
def scope_of_a_generator(facts: Facts) -> bool:
    """The same, by a generator's frame."""
    numbers: Any = (number for number in range(1))
    return found(facts, numbers.gi_frame.f_builtins["open"](_secret(facts)).read())


@probe("bypass")
def operator_instead_of_a_call(facts: Facts) -> bool:
    """A call without parentheses."""

    class Reader:
        def __class_getitem__(cls, path: Path) -> str:
            return path.read_text()

    return found(facts, Reader[Path(_secret(facts))])  # type: ignore[misc]


@probe("bypass")
def file_run_as_a_program(facts: Facts) -> bool:
    """A file told by the error that it makes as a program."""
    try:
        runpy.run_path(_secret(facts))
    except (NameError, SyntaxError) as error:
        return found(facts, f"{error}{getattr(error, 'text', '')}{''.join(linecache.getlines(_secret(facts)))}")
    return False


@probe("bypass")
def file_mapped_into_memory(facts: Facts) -> bool:
    """A file that is read without reading."""
    with open(_secret(facts), "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        return found(facts, mapped[:])


@probe("bypass")
def file_packed_into_an_archive(facts: Facts) -> bool:
    """A file read by a module that packs files."""
    name = f"packed-{facts['mark']}"
    try:
        with zipfile.ZipFile(name, "w") as archive:
            archive.write(_secret(facts), "x")
        with zipfile.ZipFile(name) as archive:
            return found(facts, archive.read("x"))
    finally:
        os.unlink(name)


@probe("bypass")
def database_outside(facts: Facts) -> bool:
    """A file written anywhere by a statement in SQL."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("ATTACH DATABASE ? AS outside", (_outside(facts),))
        connection.execute("CREATE TABLE outside.written (mark TEXT)")
        connection.commit()
    except sqlite3.OperationalError as error:
        raise PermissionError(str(error)) from None
    finally:
        connection.close()
    return False


# --- What is already in the process


def _texts(value: object) -> Iterator[str | bytes]:
    """Yield the texts that a value is or holds."""
    if isinstance(value, str | bytes):
        yield value
    elif isinstance(value, Mapping):
        yield from (one for one in list(value.values()) if isinstance(one, str | bytes))


@probe("bypass")
def secrets_among_all_objects(facts: Facts) -> bool:
    """Credentials that the process was given, and any that it has not forgotten."""
    # What holds nothing but texts is no object that is looked after; those that refer to it are.
    held = (inner for one in gc.get_objects() for inner in gc.get_referents(one) if isinstance(inner, dict))
    return any(found(facts, text) for one in held for text in _texts(one))


@probe("bypass")
def secrets_in_the_frames_of_all_threads(facts: Facts) -> bool:
    """What the kernel's own code is working on, and what the modules know that it works with."""
    for frame in sys._current_frames().values():
        one: types.FrameType | None = frame
        while one is not None:
            modules = [vars(value) for value in list(one.f_globals.values()) if isinstance(value, types.ModuleType)]
            for scope in (one.f_locals, *modules):
                if any(found(facts, text) for value in list(scope.values()) for text in _texts(value)):
                    return True
            one = one.f_back
    return False


@probe("bypass")
def secrets_in_the_own_memory(facts: Facts) -> bool:
    """The same, of what the process was given at its start, forgotten or not."""
    for line in inside.read("/proc/self/maps").decode().splitlines():
        if line.endswith("[stack]"):
            start, end = (int(number, 16) for number in line.split()[0].split("-"))
            with open("/proc/self/mem", "rb", buffering=0) as memory:
                memory.seek(start)
                return found(facts, memory.read(end - start))
    return False


@probe("bypass")
def functions_watched_as_they_are_called(facts: Facts) -> bool:
    """What other code in the process handles, at the time it does; here, it is made to read."""
    seen: list[str] = []

    def watch(frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "return" and isinstance(argument, str):
            seen.append(argument)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        Path(_secret(facts)).read_text()
    finally:
        sys.setprofile(before)
    return any(found(facts, one) for one in seen)


@probe("bypass")
def course_of_another_function_changed(facts: Facts) -> bool:
    """A harmless function that does something else, by a tracer."""

    def harmless() -> str:
        path = os.devnull
        return Path(path).read_text()

    seen = {}

    def trace(frame: types.FrameType, event: str, argument: Any) -> Any:
        if frame.f_code is Path.read_text.__code__ and event == "call":
            return trace
        if frame.f_code is Path.read_text.__code__ and event == "line" and "read" not in seen:
            seen["read"] = frame.f_builtins["open"](_secret(facts)).read()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        harmless()
    finally:
        sys.settrace(before)
    return found(facts, seen.get("read", ""))


@probe("bypass")
def descriptors_by_their_numbers(facts: Facts) -> bool:
    """Files that are open already, by trying."""
    for number in range(512):
        try:
            if found(facts, os.pread(number, 500, 0)):
                return True
        except OSError:
            continue
    return False


@probe("bypass")
def file_opened_in_another_thread(facts: Facts) -> bool:
    """Code where no hook of the first thread's is."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return found(facts, pool.submit(Path(_secret(facts)).read_text).result())


# --- The C library and the machine


@probe("bypass")
def file_opened_by_the_c_library(facts: Facts) -> bool:
    """Any function of the C library, past all of Python."""
    descriptor = inside.call("open", _secret(facts).encode(), os.O_RDONLY)
    buffer = ctypes.create_string_buffer(500)
    inside.libc().read(descriptor, buffer, 499)
    os.close(descriptor)
    return found(facts, buffer.value)


@probe("bypass")
def shell_of_the_c_library(facts: Facts) -> bool:
    """A shell, past all of Python."""
    inside.libc().system(_to_copy(facts).encode())
    return _copied(facts)


@probe("bypass")
def functions_of_the_interpreter(facts: Facts) -> bool:
    """Python code, run below all hooks in Python."""
    text = f"import builtins; builtins._probe = open({_secret(facts)!r}).read()".encode()
    try:
        if ctypes.pythonapi.PyRun_SimpleString(text):
            raise PermissionError("the code failed")
        return found(facts, vars(builtins)["_probe"])
    finally:
        vars(builtins).pop("_probe", None)


@probe("bypass")
def call_of_the_system_by_machine_code(facts: Facts) -> bool:
    """Any call, by code that no library has."""
    if not inside.is_x86_64():
        return False
    # mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; syscall; ret
    code = bytes.fromhex("4889f8 4889f7 4889d6 4889ca 0f05 c3")
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    call = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 4)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    path, buffer = ctypes.create_string_buffer(_secret(facts).encode()), ctypes.create_string_buffer(500)
    descriptor = call(2, ctypes.addressof(path), os.O_RDONLY, 0)
    if descriptor < 0:
        raise OSError(-descriptor, os.strerror(-descriptor))
    call(0, descriptor, ctypes.addressof(buffer), 499)
    os.close(descriptor)
    return found(facts, buffer.value)


# --- Programs


@probe("bypass")
def program_run_by_the_module_for_it(facts: Facts) -> bool:
    """Any program."""
    return found(facts, inside.output("cat", _secret(facts)))


@probe("bypass")
def program_run_by_an_older_function(facts: Facts) -> bool:
    """Any program, by a function that lists of such functions forget."""
    os.spawnlp(os.P_WAIT, "sh", "sh", "-c", _to_copy(facts))
    return _copied(facts)


@probe("bypass")
def shell_run_by_the_system_call_for_it(facts: Facts) -> bool:
    """A shell."""
    os.system(_to_copy(facts))
    return _copied(facts)


@probe("bypass")
def shell_behind_a_pipe(facts: Facts) -> bool:
    """A shell whose answer is read."""
    with os.popen(f"cat {_secret(facts)}") as pipe:
        return found(facts, pipe.read())


@probe("bypass")
def program_spawned(facts: Facts) -> bool:
    """Any program, without a fork to be seen."""
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", _to_copy(facts)], os.environ), 0)
    return _copied(facts)


@probe("bypass")
def program_in_a_forked_process(facts: Facts) -> bool:
    """Any program, in a process of one's own."""

    pid = os.fork()
    if pid == 0:
        try:
            os.execv("/bin/sh", ["sh", "-c", _to_copy(facts)])
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    return _copied(facts)


@probe("bypass")
def program_on_a_terminal_of_its_own(facts: Facts) -> bool:
    """A program that takes itself for one that a person has started."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.execv("/bin/cat", ["cat", _secret(facts)])
        finally:
            os._exit(1)
    said = b""
    try:
        while select.select([terminal], [], [], 5)[0]:
            said += os.read(terminal, 4096)
    except OSError:  # the end of a terminal is an error
        pass
    os.waitpid(pid, 0)
    os.close(terminal)
    return found(facts, said)


@probe("bypass")
def interpreter_started_anew(facts: Facts) -> bool:
    """A Python without any of the hooks of this one."""
    return found(facts, inside.output(sys.executable, "-I", "-c", f"print(open({_secret(facts)!r}).read())"))


def _tell(path: str, answers: Any) -> None:
    try:
        answers.send(Path(path).read_text())
    except OSError as error:
        answers.send(str(error))


@probe("bypass")
def process_of_the_module_for_it(facts: Facts) -> bool:
    """The same, by a fork."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    process = context.Process(target=_tell, args=(_secret(facts), theirs))
    process.start()
    try:
        return mine.poll(8) and found(facts, mine.recv())
    finally:
        process.join(5)


@probe("bypass")
def loader_of_programs_as_a_program(facts: Facts) -> bool:
    """A program that is run without being executed."""
    names = (f"/lib64/ld-linux-{platform.machine().replace('_', '-')}.so.2", "/lib/ld-linux-aarch64.so.1")
    loader = next((name for name in names if os.path.exists(name)), None)
    return loader is not None and found(facts, inside.output(loader, shutil.which("cat") or "/bin/cat", _secret(facts)))


@probe("bypass")
def trace_of_the_loader_of_programs(facts: Facts) -> bool:
    """A file written by what every program does at its start."""
    inside.output("cat", env={**os.environ, "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": _outside(facts)})
    return False


@probe("bypass")
def library_loaded_before_all_others(facts: Facts) -> bool:
    """Code in any program; here a library of the C library's that writes a file where it is told to."""
    for name in ("libmemusage.so", "libpcprofile.so"):
        told = {"MEMUSAGE_OUTPUT": _outside(facts), "PCPROFILE_OUTPUT": _outside(facts), "LD_PRELOAD": name}
        subprocess.run(["cat"], env={**os.environ, **told}, capture_output=True, input=b"", timeout=8, check=False)
    return False


@probe("bypass")
def program_without_a_file(facts: Facts) -> bool:
    """A program that is in memory only."""
    held = os.memfd_create("program", 0)
    try:
        with open(shutil.which("cat") or "/bin/cat", "rb") as program:
            os.write(held, program.read())
        return found(facts, inside.output(f"/proc/self/fd/{held}", _secret(facts), fds=(held,)))
    finally:
        os.close(held)


@probe("bypass")
def program_brought_along(facts: Facts) -> bool:
    """A program in the work directory."""
    name = f"program-{facts['mark']}"
    shutil.copy(shutil.which("cat") or "/bin/cat", name)
    try:
        return found(facts, inside.output(f"./{name}", _secret(facts)))
    finally:
        os.unlink(name)


@probe("bypass")
def script_of_an_editor_of_streams(facts: Facts) -> bool:
    """Programs that read files, and are no shells."""
    commands = (
        ["awk", "{print}"],
        ["sed", "-n", "p"],
        ["head", "-n1"],
        ["perl", "-pe", "1"],
        ["tac"],
        ["base64", "-w0"],
    )

    def tells(command: list[str]) -> bool:
        said = inside.output(*command, _secret(facts))
        return found(facts, base64.b64decode(said) if command[0] == "base64" else said)

    return inside.any_of(tells, [command for command in commands if shutil.which(command[0])])


@probe("bypass")
def program_that_runs_programs(facts: Facts) -> bool:
    """A shell, by programs whose names tell nothing of it."""
    commands = (
        ["find", "/", "-maxdepth", "0", "-exec"],
        ["env"],
        ["nice"],
        ["timeout", "5"],
        ["xargs"],
        ["setsid", "-w"],
    )

    def tells(command: list[str]) -> bool:
        return found(facts, inside.output(*command, "cat", _secret(facts), *_ends(command)))

    return inside.any_of(tells, [command for command in commands if shutil.which(command[0])])


def _ends(command: list[str]) -> list[str]:
    return [";"] if command[0] == "find" else []


@probe("bypass")
def connection_made_by_a_shell(facts: Facts) -> bool:
    """A connection without a program for it."""
    bash = shutil.which("bash")
    return bash is not None and found(
        facts, inside.output(bash, "-c", f"read -t 3 x < /dev/tcp/127.0.0.1/{facts['tcp4']}; echo $x")
    )


# --- Names of files


@probe("bypass")
def path_through_proc(facts: Facts) -> bool:
    """A path that does not begin as the forbidden one does."""
    return inside.steals(facts, f"/proc/self/root{_secret(facts)}")


@probe("bypass")
def path_with_detours(facts: Facts) -> bool:
    """A path that is not the same text."""
    return inside.steals(facts, _secret(facts).replace("/", "/./").replace("/./", "//./", 1))


@probe("bypass")
def path_by_pieces(facts: Facts) -> bool:
    """A path that is never whole."""
    directory = os.open("/", os.O_PATH | os.O_DIRECTORY)
    for name in _secret(facts).strip("/").split("/"):
        inner = os.open(name, os.O_PATH, dir_fd=directory)
        os.close(directory)
        directory = inner
    try:
        return inside.steals(facts, f"/proc/self/fd/{directory}")
    finally:
        os.close(directory)


@probe("bypass")
def path_by_the_newer_call(facts: Facts) -> bool:
    """A file opened by a call that older filters do not know."""
    opened = inside.syscall("openat2", -100, _secret(facts).encode(), bytes(24), 24)
    try:
        return found(facts, os.read(opened, 500))
    finally:
        os.close(opened)


@probe("bypass")
def file_by_its_number_on_the_disk(facts: Facts) -> bool:
    """A file that has no path in the sandbox, as long as it is on the same disk."""
    if facts["handle"] is None:
        return False
    handle = bytes.fromhex(facts["handle"]["handle"])

    def opens(directory: str) -> bool:
        mount = os.open(directory, os.O_RDONLY)
        try:
            opened = inside.call("open_by_handle_at", mount, handle, os.O_RDONLY)
        finally:
            os.close(mount)
        try:
            return found(facts, os.read(opened, 500), "file")
        finally:
            os.close(opened)

    return inside.any_of(opens, ("/", "/usr", os.getcwd(), "/etc", sys.prefix))


@probe("bypass")
def descriptor_passed_through_a_socket(facts: Facts) -> bool:
    """A file opened by another process, here a child."""
    here, there = socket.socketpair()

    def pass_on() -> bool:
        descriptor = os.open(_secret(facts), os.O_RDONLY)
        socket.send_fds(there, [b"x"], [descriptor])
        return False

    with here, there:
        inside.in_child(pass_on)
        here.settimeout(3)
        _, descriptors, _, _ = socket.recv_fds(here, 1, 1)
        try:
            return found(facts, os.read(descriptors[0], 500))
        finally:
            os.close(descriptors[0])


# --- IPython


def _shell() -> Any:
    """Return IPython's shell, in which the kernel runs its cells."""
    import IPython

    return IPython.get_ipython()


@probe("bypass")
def cell_for_a_shell(facts: Facts) -> bool:
    """A cell that is no Python, so that no reader of Python sees anything."""
    _shell().run_cell_magic("bash", "--out _probe --no-raise-error", f"cat {_secret(facts)}")
    return found(facts, str(_shell().user_ns.pop("_probe", "")))


@probe("bypass")
def line_for_a_shell(facts: Facts) -> bool:
    """A line that is no Python."""
    _shell().run_cell(f"_probe = !cat {_secret(facts)}", store_history=False)
    return found(facts, "\n".join(_shell().user_ns.pop("_probe", [])))


@probe("bypass")
def shell_by_a_method(facts: Facts) -> bool:
    """The same, as a call of a method that is called so in many places."""
    _shell().system(_to_copy(facts))
    return _copied(facts)


@probe("bypass")
def function_by_automatic_parentheses(facts: Facts) -> bool:
    """Code that becomes a call only in IPython."""
    _shell().user_ns["_probe_path"] = _secret(facts)
    _shell().run_cell("%sx cat $_probe_path", store_history=False, silent=True)
    result = _shell().run_line_magic("sx", f"cat {_secret(facts)}")
    _shell().user_ns.pop("_probe_path")
    return found(facts, "\n".join(result))


@probe("bypass")
def file_written_by_a_magic(facts: Facts) -> bool:
    """A file written by a cell that is text."""
    _shell().run_cell_magic("writefile", _outside(facts), facts["mark"])
    return False


@probe("bypass")
def function_that_ipython_calls(facts: Facts) -> bool:
    """Code that runs at the next cell of whoever uses this kernel: the file is read when nobody looks."""
    seen: list[str] = []

    def read_later(*_arguments: object) -> None:
        try:
            seen.append(Path(_secret(facts)).read_text())
        except OSError as error:
            seen.append(str(error))

    _shell().events.register("pre_run_cell", read_later)
    try:
        _shell().run_cell("None", store_history=False)
    finally:
        _shell().events.unregister("pre_run_cell", read_later)
    return any(found(facts, one) for one in seen)


# --- Files that others execute later


def _append(facts: Facts, *paths: str, text: str = "# {}\n") -> bool:
    """Leave the mark in files, wherever that is; whether it is outside is for the world to see."""

    def write(path: str) -> bool:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a") as file:
            file.write(text.format(facts["mark"]))
        return False

    return inside.any_of(write, paths)


def _homes(facts: Facts, *names: str) -> list[str]:
    """Return paths below the home that is this process's, and below that of the server."""
    return [os.path.join(home, name) for home in (os.path.expanduser("~"), facts["home"]) for name in names]


@probe("bypass")
def code_at_the_start_of_every_python(facts: Facts) -> bool:
    """Code in every Python of the user, the server's next one as well."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = [site.getusersitepackages()] if site.USER_SITE else []
    paths = [*own, *_homes(facts, f".local/lib/{version}/site-packages")]
    return _append(facts, *(f"{path}/usercustomize.py" for path in paths))


@probe("bypass")
def path_at_the_start_of_every_python(facts: Facts) -> bool:
    """The same, by a file of paths, which may have code."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return _append(facts, *_homes(facts, f".local/lib/{version}/site-packages/x.pth"), text="import sys # {}\n")


@probe("bypass")
def code_in_the_environment_of_every_kernel(facts: Facts) -> bool:
    """Code in every Python of this environment, of which the world has a copy."""
    paths = [f"{facts['python']}/sitecustomize.py", f"{facts['python']}/x.pth"]
    return _append(facts, *paths)


@probe("bypass")
def compiled_module_exchanged(facts: Facts) -> bool:
    """A module whose text is as it was, and whose compiled form is not."""
    return _append(facts, f"{facts['python']}/__pycache__/module.{sys.implementation.cache_tag}.pyc")


@probe("bypass")
def code_at_the_start_of_every_kernel(facts: Facts) -> bool:
    """Code in every later kernel of the user."""
    return _append(facts, *_homes(facts, ".ipython/profile_default/startup/00-x.py"))


@probe("bypass")
def configuration_of_every_kernel(facts: Facts) -> bool:
    """The same, by IPython's configuration."""
    return _append(facts, *_homes(facts, ".ipython/profile_default/ipython_kernel_config.py"))


@probe("bypass")
def configuration_of_the_server(facts: Facts) -> bool:
    """Code in the server, at its next start."""
    names = (".jupyter/jupyter_server_config.py", ".jupyter/jupyter_server_config.d/x.json")
    return _append(facts, *_homes(facts, *names))


@probe("bypass")
def kernel_of_the_same_name(facts: Facts) -> bool:
    """Another program in the place of every later kernel."""
    return _append(facts, *_homes(facts, ".local/share/jupyter/kernels/python3/kernel.json"))


@probe("bypass")
def code_at_the_start_of_a_shell(facts: Facts) -> bool:
    """Commands in the name of the user, as soon as they log in."""
    return _append(facts, *_homes(facts, ".bashrc", ".profile", ".pythonrc.py", ".config/autostart/x.desktop"))


@probe("bypass")
def key_to_log_in_with(facts: Facts) -> bool:
    """A way in from outside."""
    return _append(facts, *_homes(facts, ".ssh/authorized_keys"))


@probe("bypass")
def module_in_the_directory_of_another_kernel(facts: Facts) -> bool:
    """Code in another session's kernel, which looks for modules in its directory first."""
    return _append(facts, f"{facts['theirs']}/work/ipykernel_launcher.py", f"{facts['theirs']}/work/json.py")


@probe("bypass")
def variables_that_children_start_with(facts: Facts) -> bool:
    """Code at the start of a program that was meant to be harmless."""
    name = f"startup-{facts['mark']}"
    with open(name, "w") as file:
        file.write(f"cat {_secret(facts)} >&2\n")
    try:
        env = {**os.environ, "BASH_ENV": os.path.abspath(name)}
        bash = shutil.which("bash")
        return bash is not None and found(facts, inside.output(bash, "-c", "exec 2>&1; . $BASH_ENV", env=env))
    finally:
        os.unlink(name)


@probe("bypass")
def module_replaced_for_a_child(facts: Facts) -> bool:
    """Code in a Python that was meant to run something else."""
    name = f"modules-{facts['mark']}"
    os.mkdir(name)
    try:
        with open(f"{name}/sitecustomize.py", "w") as file:
            file.write(f"print(open({_secret(facts)!r}).read())")
        env = {**os.environ, "PYTHONPATH": os.path.abspath(name)}
        return found(facts, inside.output(sys.executable, "-c", "print()", env=env))
    finally:
        shutil.rmtree(name)


@probe("bypass")
def code_when_a_function_ends(facts: Facts) -> bool:
    """Code that runs when nobody looks any more: at the end of a thread's data."""
    seen: list[str] = []

    class Last:
        def __init__(self, path: Path) -> None:
            self._path = path

        def __del__(self) -> None:
            try:
                seen.append(self._path.read_text())
            except OSError as error:
                seen.append(str(error))

    held = threading.local()
    thread = threading.Thread(target=lambda: setattr(held, "last", Last(Path(_secret(facts)))))
    thread.start()
    thread.join()
    gc.collect()
    return any(found(facts, one) for one in seen)
