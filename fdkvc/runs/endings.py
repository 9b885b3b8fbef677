"""The signals that end a command, and when they do."""

import signal


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
"""Of this process, once its program has made it a handler."""
