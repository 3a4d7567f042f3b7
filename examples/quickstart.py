"""What an agent gets back: text as it is printed, a value, and a picture. Runs in any Python kernel."""

import struct
import time
import zlib

from IPython.display import Image, display

print("Counting to three, in a real kernel:")
for number in (1, 2, 3):
    print(number, flush=True)
    time.sleep(0.2)

WIDTH, HEIGHT, LIMIT = 320, 200, 60


def escape_time(x: int, y: int) -> int:
    """Return how long a point stays bounded under z -> z*z + c."""
    c = complex(3.2 * x / WIDTH - 2.2, 2.4 * y / HEIGHT - 1.2)
    z = 0j
    for step in range(LIMIT):
        z = z * z + c
        if abs(z) > 2:
            return step
    return LIMIT


def png(rows: list[bytes]) -> bytes:
    """Return rows of RGB pixels as a PNG file, with nothing but the standard library."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def colour(step: int) -> bytes:
    """Return a pixel: black inside, through blue to white outside."""
    share = 0 if step == LIMIT else step / LIMIT
    return bytes((int(255 * share), int(255 * share**0.7), int(255 * share**0.3)))


picture = png([b"".join(colour(escape_time(x, y)) for x in range(WIDTH)) for y in range(HEIGHT)])
display(Image(picture))

{"pixels": WIDTH * HEIGHT, "bytes": len(picture)}
