"""The signals that end a command, and when they do."""

from __future__ import annotations

import signal
from typing import Any


class Endings:
    """The handler of the signals that end a command: not during a write, nor after it."""

    held = written = False
    number = 0

    def __call__(self, number: int, _: object = None) -> None:
        """Raise a KeyboardInterrupt, unless signals are held; during its cleanup only on Ctrl-C."""
        again, self.number = self.number, number
        if not self.held and (number == signal.SIGINT or not again):
            raise KeyboardInterrupt(number)

    def check(self) -> None:
        """Raise a KeyboardInterrupt if a signal came while nothing was written."""
        if self.number and not self.written:
            raise KeyboardInterrupt(self.number)


ENDINGS = Endings()
"""Of this process, once its program handles signals with it."""


def handle_endings(handler: Any = ENDINGS) -> None:
    """Set the handler of Ctrl-C, SIGTERM and SIGHUP, where they are not ignored."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
