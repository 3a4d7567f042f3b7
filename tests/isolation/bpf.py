"""A small interpreter of classic BPF, for the programs that the kernel runs at each system call."""

from __future__ import annotations

import struct
from collections.abc import Sequence

MAX_INSTRUCTIONS = 4096
DATA_BYTES = 64  # struct seccomp_data

LOAD, AND, RETURN = 0x20, 0x54, 0x06
JUMP, JUMP_EQUAL, JUMP_GREATER, JUMP_AT_LEAST, JUMP_ANY_BIT = 0x05, 0x15, 0x25, 0x35, 0x45
CONDITIONS = (JUMP_EQUAL, JUMP_GREATER, JUMP_AT_LEAST, JUMP_ANY_BIT)

Instruction = tuple[int, int, int, int]


def instructions(program: bytes) -> list[Instruction]:
    """Return code, jump if true, jump if false, and value of each instruction."""
    return list(struct.iter_unpack("<HBBI", program))


def complaints(program: bytes) -> list[str]:
    """Return why the kernel would not take the program; the same is looked at in `seccomp_check_filter`."""
    code = instructions(program)
    found = [] if 0 < len(code) <= MAX_INSTRUCTIONS else [f"{len(code)} instructions"]
    for place, (operation, if_true, if_false, value) in enumerate(code):
        jumps: tuple[int, ...] = ()
        if operation == LOAD:
            if value % 4 or value >= DATA_BYTES:
                found.append(f"{place} loads from {value}")
        elif operation == JUMP:
            jumps = (value,)
        elif operation in CONDITIONS:
            jumps = (if_true, if_false)
        elif operation not in (AND, RETURN):
            found.append(f"{place} is operation {operation:#x}")
        found += [f"{place} jumps out" for jump in jumps if place + 1 + jump >= len(code)]
    if code and code[-1][0] != RETURN:
        found.append("the end is not an answer")
    return found


def answer(program: bytes, architecture: int, number: int, arguments: Sequence[int] = ()) -> int:
    """Return what the program answers to a call."""
    words = [*(argument & 0xFFFFFFFFFFFFFFFF for argument in arguments), 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, architecture, 0, *words)
    code = instructions(program)
    place = accumulator = 0
    while True:
        operation, if_true, if_false, value = code[place]
        place += 1
        if operation == RETURN:
            return value
        if operation == LOAD:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == AND:
            accumulator &= value
        elif operation == JUMP:
            place += value
        else:
            holds = {
                JUMP_EQUAL: accumulator == value,
                JUMP_GREATER: accumulator > value,
                JUMP_AT_LEAST: accumulator >= value,
                JUMP_ANY_BIT: accumulator & value != 0,
            }[operation]
            place += if_true if holds else if_false
