"""What tests let light processes do: functions of a module that these can import without torch."""

import os
import pickle
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection


def half(connection: Connection) -> None:
    """Answer with half of what comes."""
    sent = connection.recv_bytes()
    connection.send_bytes(sent[: len(sent) // 2])


def cut_off(connection: Connection) -> None:
    """Announce an answer of 64 bytes, and die."""
    os.write(connection.fileno(), b"\x00\x00\x00\x40...")
    os.kill(os.getpid(), signal.SIGKILL)


def has_marked_module(connection: Connection) -> None:
    """Answer whether the module "marked" is there, which only the first process has."""
    connection.send_bytes(pickle.dumps("marked" in sys.modules))


def waiting(connection: Connection) -> None:
    """Wait until nobody can send anything any more."""
    with suppress(EOFError):
        connection.recv_bytes()
