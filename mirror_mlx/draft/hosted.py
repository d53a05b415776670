"""A draft that can run on several hosts: on one at a time, and on another when it is told to."""

from collections.abc import Callable, Mapping
from typing import Any

from mirror_mlx.draft.protocol import Draft
from mirror_mlx.draft.wrapped import Wrapped


class Hosted(Wrapped):
    """The draft as it is on one host; the others are opened when they are first needed.

    name    of the host it is on, which is where it belongs
    others  how to open it elsewhere, by name of the host
    """

    def __init__(self, name: str, draft: Draft, others: Mapping[str, Callable[[], Draft]]) -> None:
        super().__init__(draft)
        self.hosts = (name, *others)
        self.place = name
        self._opened, self._others = {name: draft}, others

    def move(self, host: str) -> None:
        """From now on there, with an unknown trunk: `begin`, `rewind` and `prefill` come next. Whatever opening it may
        raise; it then stays where it is."""
        if host not in self._opened:
            self._opened[host] = self._others[host]()
        self._draft, self.place = self._opened[host], host

    @property
    def host(self) -> str:
        return getattr(self._draft, "host", self.place)

    @property
    def model(self) -> Any:
        return getattr(self._draft, "model", None)

    @property
    def identity(self) -> str | None:
        return getattr(self._draft, "identity", None)

    def close(self) -> None:
        for draft in self._opened.values():
            draft.close()
