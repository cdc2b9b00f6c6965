"""The three standard streams where they are no terminal: closed, full, or a pipe whose reader has left."""

import errno
import os
import signal
import sys
import warnings
from contextlib import suppress
from io import BufferedReader, RawIOBase, TextIOWrapper
from typing import TextIO

from onlstm.errors import UserError

NO_READER = 128 + signal.SIGPIPE
"""The exit code of a command whose output nobody reads any longer, such as `onlstm … | head`."""
_format = warnings.formatwarning
_OF_A_STREAM = {errno.EBADF, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class _Closed(RawIOBase):
    """The standard input if there is none."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise UserError("the standard input is closed; name a file")


def prepare() -> None:
    """Put something in the place of closed streams, and let every character be written.

    What is closed stays an error to read from or to write to; but no file that is opened later gets its number, and
    messages to a closed stderr do not end up in the results.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)  # the lowest free number: 0
        sys.stdin = TextIOWrapper(BufferedReader(_Closed()))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without an arrow or an é is no reason to stop
            stream.reconfigure(errors="replace")
    warnings.formatwarning = _one_line


def _one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a warning of ours as a line, without the code that it came from; others as Python shows them."""
    if category is RuntimeWarning and str(message).startswith("onlstm "):
        return f"onlstm: {str(message).removeprefix('onlstm ')}\n"
    return _format(message, category, filename, lineno, line)


def show(line: str, stream: TextIO) -> None:
    """Print a line now. Results that cannot be written are an error, messages are not; without a reader all ends."""
    try:
        print(line, file=stream, flush=True)
    except BrokenPipeError:  # the library takes errors of the system for those of its own files
        raise SystemExit(NO_READER) from None
    except OSError as error:
        if stream is sys.stdout:
            raise UserError(cannot_write(error)) from None


def is_of_stdout(error: OSError) -> bool:
    """Return whether an error can only be one of printing: what is wrong with a file has the file's name."""
    return error.filename is None and error.errno in _OF_A_STREAM


def cannot_write(error: OSError) -> str:
    """Return what to say about results that could not be printed."""
    return f"cannot write to the standard output: {error.strerror}"


def last_words(line: str = "") -> None:
    """Print a line to stderr if that can be done, and drop what the streams hold and cannot write."""
    with suppress(OSError):
        print(line, end="\n" if line else "", file=sys.stderr, flush=True)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # Python would try again, and complain, while it shuts down
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
