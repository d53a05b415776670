"""Stepping between a loaded model's modules without changing the model: parameters, paths and types stay as they are.

A module is given a subclass of its own class whose call goes through handlers. `release` takes a handler out again;
with the last one the module has its own class back.
"""

from collections.abc import Callable
from typing import Any

import mlx.nn as nn

Handler = Callable[..., Any]
"""handler(module, call, *args, **kwargs): `call` is the module's own forward."""


def interpose(module: nn.Module, handler: Handler) -> None:
    """Send every call of `module` through `handler`, around the handlers it has already."""
    _install(module, (*_handlers(module), handler))


def release(module: nn.Module, handler: Handler) -> None:
    """Undo one `interpose` of this handler; nothing happens where there was none. Any order will do."""
    handlers = list(_handlers(module))
    if handler in handlers:
        handlers.reverse()
        handlers.remove(handler)
        _install(module, tuple(reversed(handlers)))


def _handlers(module: nn.Module) -> tuple[Handler, ...]:
    return type(module).__dict__.get("_handlers", ())


def _install(module: nn.Module, handlers: tuple[Handler, ...]) -> None:
    original = type(module).__dict__.get("_original", type(module))
    if not handlers:
        module.__class__ = original
        return

    def through(self: nn.Module, depth: int, *args: Any, **kwargs: Any) -> Any:
        if depth < 0:
            return original.__call__(self, *args, **kwargs)
        return handlers[depth](self, lambda *a, **k: through(self, depth - 1, *a, **k), *args, **kwargs)

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        return through(self, len(handlers) - 1, *args, **kwargs)

    body = {"__call__": __call__, "_original": original, "_handlers": handlers}
    module.__class__ = type(original.__name__, (original,), body)
