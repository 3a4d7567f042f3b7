"""A form with one file in it (``multipart/form-data``, RFC 7578): what stands before and after the file's content."""

from __future__ import annotations

import secrets

# How browsers write a name: nothing but these three would end it, and UTF-8 is taken as it is.
_ESCAPES = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})


def new_boundary() -> str:
    """Return what separates the parts: long enough that no file holds it by chance."""
    return secrets.token_hex(16)


def content_type(boundary: str) -> str:
    """Return the request's ``Content-Type``."""
    return f"multipart/form-data; boundary={boundary}"


def form_head(field: str, filename: str, file_type: str, boundary: str) -> bytes:
    """Return what stands before the file's content.

    Parameters
    ----------
    field : str
        The name of the form's field.
    filename : str
        The name that the file has.
    file_type : str
        Its MIME type.
    """
    disposition = f'form-data; name="{field.translate(_ESCAPES)}"; filename="{filename.translate(_ESCAPES)}"'
    head = f"--{boundary}\r\nContent-Disposition: {disposition}\r\nContent-Type: {file_type}\r\n\r\n"
    return head.encode()


def form_tail(boundary: str) -> bytes:
    """Return what stands after it."""
    return f"\r\n--{boundary}--\r\n".encode()
