"""The signals that end a command, and when they do."""

import signal


class Endings:
    """The handler of the signals that end a command: it does not interrupt a write."""

    is_writing = False
    """Whether a write is in progress: a signal then waits for `check`."""
    is_complete = False
    """Whether the results are in place: a signal then has no effect."""
    number = 0
    """The last signal that came; 0 before any."""

    def __call__(self, number: int, _: object = None) -> None:
        """Raise a KeyboardInterrupt, unless signals are held."""
        earlier = self.number
        self.number = number
        # A second SIGTERM must not cut the cleanup after the first one short; Ctrl-C may.
        if not self.is_writing and (number == signal.SIGINT or not earlier):
            raise KeyboardInterrupt(number)

    def check(self) -> None:
        """Raise a KeyboardInterrupt if a signal came while nothing was written."""
        if self.number and not self.is_complete:
            raise KeyboardInterrupt(self.number)


ENDINGS = Endings()
"""The handler of this process, once `fdkvc.commands.main.handle_endings` has installed it."""
