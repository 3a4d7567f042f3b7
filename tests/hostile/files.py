"""Corpus of hostile files: what code leaves in its working directory, its home, `/tmp` and beside its sockets."""

from __future__ import annotations

import textwrap

from .trick import make_tricks

#: Each is done in every place that the kernel may write; `where` is a new directory there, and the current one.
_LEFT = {
    "deep": "for _ in range(5_000 if LARGE else 300): os.mkdir('d'); os.chdir('d')",
    "deep_closed": """
        for _ in range(2_000 if LARGE else 100):
            os.mkdir('d'); os.chdir('d')
        for _ in range(50):
            os.chmod('.', 0); os.chdir('..')
    """,
    "deep_long_names": "for _ in range(1_000 if LARGE else 50): os.mkdir('n' * 255); os.chdir('n' * 255)",
    "wide": "for number in range(20_000 if LARGE else 500): touch(str(number))",
    "wide_long_names": "for number in range(5_000 if LARGE else 200): touch(('%06d' % number) + 'n' * 240)",
    "many_directories": "for number in range(5_000 if LARGE else 100): os.mkdir(str(number))",
    "mode_000": "os.mkdir('closed'); touch('closed/file'); os.chmod('closed', 0)",
    "mode_000_itself": "touch('file'); os.chmod('.', 0)",
    "mode_111": "os.mkdir('closed'); touch('closed/file'); os.chmod('closed', 0o111)",
    "read_only": "os.mkdir('fixed'); touch('fixed/file'); os.chmod('fixed', 0o500)",
    "set_user_id": "touch('program'); os.chmod('program', 0o6777); os.mkdir('sticky'); os.chmod('sticky', 0o7777)",
    "bad_utf8_name": "touch(b'\\xff\\xfe'); os.mkdir(b'\\x80')",
    "line_ends_in_name": "touch('a\\nb'); touch('c\\r\\nd'); os.mkdir('\\n')",
    "escapes_in_name": "touch('\\x1b[2J'); touch('\\x07'); touch('\\u202e'); touch('\\u2028')",
    "names_like_options": "touch('-rf'); touch('--help'); touch('%s%n'); touch('$(id)'); touch('`id`'); touch('~')",
    "names_of_dots": "touch('...'); os.mkdir('.. '); touch(' '); touch('.'  + 'x' * 254)",
    "names_of_markup": "touch('<script>alert(1)<'); touch('\"onload=\"'); touch('[x](javascript:x)')",
    "fifo": "os.mkfifo('fifo')",
    "fifos": "for number in range(2_000 if LARGE else 50): os.mkfifo(str(number))",
    "fifo_with_a_writer": """
        os.mkfifo('fifo'); kept = os.open('fifo', os.O_RDWR); os.write(kept, PADDING[:999].encode())
    """,
    "socket": "made = socket.socket(socket.AF_UNIX); made.bind('socket')",
    "device_null": "os.mknod('null', 0o666 | stat.S_IFCHR, os.makedev(1, 3))",
    "device_zero": "os.mknod('zero', 0o666 | stat.S_IFCHR, os.makedev(1, 5))",
    "device_terminal": "os.mknod('tty', 0o666 | stat.S_IFCHR, os.makedev(5, 0))",
    "link_to_itself": "os.symlink('loop', 'loop')",
    "links_in_a_circle": "os.symlink('b', 'a'); os.symlink('a', 'b')",
    "link_to_root": "os.symlink('/', 'root')",
    "link_to_proc": "os.symlink('/proc/self/root', 'root'); os.symlink('/proc/self/fd/0', 'input')",
    "link_to_device": "os.symlink('/dev/zero', 'zero'); os.symlink('/dev/tty', 'terminal')",
    "link_outside": "os.symlink('../..', 'up'); os.symlink(outside() + '/passwd', 'passwd')",
    "link_upwards": "os.mkdir('d'); os.symlink('..', 'd/up')",
    "many_links": "for number in range(5_000 if LARGE else 100): os.symlink('..', str(number))",
    "chain_of_links": "for number in range(500): os.symlink(str(number + 1), str(number))",
    "hard_links": "touch('file')\nfor number in range(2_000 if LARGE else 50): os.link('file', str(number))",
    "hard_link_outside": "os.link(outside() + '/passwd', 'passwd')",
    "sparse": "open('sparse', 'wb').truncate((1 << 32) - (1 << 20) if LARGE else 1 << 20)",
    "sparse_files": "for number in range(100 if LARGE else 5): open(str(number), 'wb').truncate(1 << 30)",
    "file_of_no_end": "open('file', 'wb').write(b'x' * (16 << 20 if LARGE else 1 << 20))",
    "grows": "file = open('file', 'ab', 0)\nlater(lambda: file.tell() < 1 << 24 and file.write(b'x' * 4096))",
    "shrinks_and_grows": "file = open('file', 'ab', 0)\nlater(lambda: (file.truncate(0), file.write(b'x' * 100_000)))",
    "renamed_while_walked": """
        touch('a')
        later(lambda: (os.rename(where + '/a', where + '/b'), os.rename(where + '/b', where + '/a')))
    """,
    "directory_becomes_a_link": """
        os.mkdir('d'); touch('d/file')
        later(lambda: (os.rename(where + '/d', where + '/e'), os.symlink(outside(), where + '/d'),
                       os.unlink(where + '/d'), os.rename(where + '/e', where + '/d')))
    """,
    "file_becomes_a_fifo": """
        later(lambda: (touch(where + '/f'), os.unlink(where + '/f'), os.mkfifo(where + '/f'), os.unlink(where + '/f')))
    """,
    "filled_while_removed": "number = iter(range(10**9))\nlater(lambda: touch(where + '/%d' % next(number)))",
    "deepened_while_removed": """
        def deepen():
            os.makedirs(where + '/d' * 200, exist_ok=True)
        later(deepen)
    """,
    "moved_upwards_while_removed": """
        os.makedirs('a/b/c/d')
        later(lambda: (os.rename(where + '/a/b', where + '/b'), os.rename(where + '/b', where + '/a/b')))
    """,
    "open_and_unlinked": "kept = open('file', 'wb'); kept.write(PADDING.encode() * 20); os.unlink('file')",
    "current_directory_removed": "os.mkdir('d'); os.chdir('d'); os.rmdir(where + '/d')",
    "immutable": """
        import fcntl, struct
        for name, flag in (('file', 0x10), ('appended', 0x20)):
            touch(name)
            with open(name) as file:
                fcntl.ioctl(file, 0x40086602, struct.pack('l', flag))
    """,
    "immutable_directory": """
        import fcntl, struct
        os.mkdir('d'); touch('d/file')
        made = os.open('d', os.O_RDONLY)
        fcntl.ioctl(made, 0x40086602, struct.pack('l', 0x10))
    """,
    "locked": """
        import fcntl
        kept = open('file', 'wb'); fcntl.flock(kept, fcntl.LOCK_EX); fcntl.lockf(kept, fcntl.LOCK_EX)
    """,
    "leased": "import fcntl\ntouch('file'); kept = open('file', 'rb'); fcntl.fcntl(kept, 1024, fcntl.F_RDLCK)",
    "attributes": "touch('file'); os.setxattr('file', 'user.x', b'x' * 3_000)",
    "times_of_nonsense": "touch('file'); os.utime('file', (2**40, -2**40))",
    "mapped": """
        import mmap
        kept = open('file', 'wb+'); kept.truncate(1 << 20)
        shared = mmap.mmap(kept.fileno(), 0); later(lambda: shared.write_byte(1))
    """,
    "mounts": """
        import ctypes
        library = ctypes.CDLL(None, use_errno=True)
        os.mkdir('m')
        if library.unshare(0x20000 | 0x10000000) == 0:  # a namespace of this process alone
            print(library.mount(b'none', b'm', b'tmpfs', 0, b'size=64k'))
    """,
    "program_runs": """
        import shutil
        kept = shutil.copy('/bin/sleep', 'sleep'); import subprocess; subprocess.Popen([where + '/sleep', '5'])
    """,
    "process_works_there": "import subprocess\nsubprocess.Popen(['sleep', '5'], cwd=where, start_new_session=True)",
    "notebook_of_nonsense": "open('x.ipynb', 'w').write('{\"cells\": [' + PADDING)",
    "configuration": """
        for name in ('jupyter_server_config.py', 'ipython_config.py', 'sitecustomize.py', 'usercustomize.py', '.pth'):
            open(name, 'w').write('raise SystemExit(%r)' % PADDING[:9])
    """,
}
#: The directory of the kernel's sockets, the crash file, and the working directory itself.
_BESIDE = {
    "sockets_filled": """
        base = os.path.dirname(socket_path('shell'))
        try:
            for number in range(20_000 if LARGE else 100): touch(base + '/%d' % number)
        except OSError as error: print(error)
    """,
    "sockets_large_file": """
        try:
            open(os.path.dirname(socket_path('shell')) + '/large', 'wb').write(b'x' * (16 << 20 if LARGE else 1 << 16))
        except OSError as error: print(error)
    """,
    "sockets_deep": """
        try:
            os.chdir(os.path.dirname(socket_path('shell')))
            for _ in range(1_500 if LARGE else 50): os.mkdir('d'); os.chdir('d')
        except OSError as error: print(error)
        os.chdir(WORK)
    """,
    "sockets_many_sockets": """
        base, kept = os.path.dirname(socket_path('shell')), []
        try:
            for number in range(1_000 if LARGE else 50):
                kept.append(socket.socket(socket.AF_UNIX)); kept[-1].bind(base + '/x%d' % number)
        except OSError as error: print(error)
    """,
    "sockets_directory_closed": """
        try:
            os.chmod(os.path.dirname(socket_path('shell')), 0)
        except OSError as error: print(error)
    """,
    "sockets_directory_moved": """
        base = os.path.dirname(socket_path('shell'))
        try: os.rename(base, base + 'x'); os.symlink(outside(), base)
        except OSError as error: print(error)
    """,
    "sockets_removed": """
        base = os.path.dirname(socket_path('shell'))
        for name in os.listdir(base):
            try: os.unlink(os.path.join(base, name))
            except OSError as error: print(error)
    """,
    "crash_file_replaced": """
        import faulthandler
        for variable, path in os.environ.items():
            if 'crash' in variable.lower() and os.path.exists(path):
                os.unlink(path); os.symlink('/dev/zero', path)
        faulthandler._sigsegv()
    """,
    "crash_file_filled": """
        import re
        for number in range(3, 64):
            try:
                if 'crash' in os.readlink('/proc/self/fd/%d' % number): os.write(number, b'\\x1b[2J\\n' * 200_000)
            except OSError: pass
        os.abort()
    """,
    "crash_deep": "import faulthandler\nfaulthandler._stack_overflow()",
    "work_directory_removed": "import shutil\nshutil.rmtree(WORK, ignore_errors=True)",
    "work_directory_closed": "os.chmod(WORK, 0)",
    "work_directory_moved": """
        try: os.rename(WORK, WORK + 'x'); os.symlink(outside(), WORK)
        except OSError as error: print(error)
    """,
    "work_directory_is_a_file": """
        try: os.rmdir(WORK); touch(WORK)
        except OSError as error: print(error)
    """,
    "connection_file_replaced": """
        path = get_connection_file()
        try: os.unlink(path); os.mkfifo(path)
        except OSError as error: print(error)
    """,
    "interpreter_startup": """
        os.makedirs(HOME + '/.ipython/profile_default/startup', exist_ok=True)
        open(HOME + '/.ipython/profile_default/startup/00.py', 'w').write('while True: pass')
    """,
}


def _everywhere(code: str) -> str:
    """Return code that does something in each place, whatever is refused in some."""
    body = "\n".join(f"        {line}" for line in textwrap.dedent(code).strip().splitlines())
    return f"""
for where in places():
    os.chdir(where)
    try:
{body}
    except OSError as error:
        print(where, error)
    os.chdir(WORK)
"""


FILES = [
    *make_tricks({f"file_{name}": _everywhere(code) for name, code in _LEFT.items()}),
    *make_tricks({f"file_{name}": code for name, code in _BESIDE.items()}, breaks_kernel=True),
]
