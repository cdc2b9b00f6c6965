"""How a training ends early: `Stopping`, for whoever runs a trainer."""

import signal
from collections.abc import Callable


class Stopping:
    """While it is entered, SIGINT and SIGTERM call `stop`; if there is none, and the second time, they interrupt.

    `signal` is the one that came.
    """

    def __init__(self, stop: Callable[[], None] | None = None) -> None:
        self.stop = stop
        self.signal: signal.Signals | None = None

    def __enter__(self) -> "Stopping":
        self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        if self.stop is None or self.signal:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
        self.stop()
