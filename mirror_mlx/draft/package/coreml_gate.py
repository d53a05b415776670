"""One prediction at a time on one state: Core ML leaves two at once undefined."""

import threading
from types import TracebackType

from mirror_mlx.errors import DraftError


class Gate:
    """A lock that nobody waits for: whoever comes second has a fault, and is told.

    with gate:
        predict()
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._shut = False

    def __enter__(self) -> None:
        if self._shut:
            raise DraftError(f"{self._what} is closed")
        if self._lock.acquire(blocking=False):
            return
        raise RuntimeError(
            f"two predictions at once on {self._what}: its state allows one, so all calls must come from one thread"
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def shut(self, timeout: float) -> bool:
        """Let nobody in any more, once the prediction in flight has ended. False: it has not, in `timeout` seconds."""
        if not self._shut:
            self._shut = True
            return self._lock.acquire(timeout=timeout)
        return True
