"""How a training is ended early: by a signal, after the step at hand."""

import signal


class Stop:
    """A request to end a training after the step at hand, with a checkpoint.

    Within `with`, SIGINT and SIGTERM request it while `fit` runs; at other times, and the second time, they interrupt.
    """

    requested = fitting = False
    received: signal.Signals | None = None
    """The signal that requested it."""

    def __enter__(self) -> "Stop":
        self._handlers = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: object) -> None:
        if self.requested or not self.fitting:
            raise KeyboardInterrupt
        self.requested, self.received = True, signal.Signals(number)
