"""Stepping between a loaded model's modules without changing the model: parameters, paths and types stay as they are.

A module is given a subclass of its own class whose call goes through a handler. `release` gives the class back.
"""

from collections.abc import Callable
from typing import Any

import mlx.nn as nn

Handler = Callable[..., Any]
"""handler(module, call, *args, **kwargs): `call` is the module's own forward."""


def interpose(module: nn.Module, handler: Handler) -> None:
    """Send every call of `module` through `handler`. May be done twice; each `release` undoes the last."""
    original = type(module)

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        return handler(self, lambda *a, **k: original.__call__(self, *a, **k), *args, **kwargs)

    body = {"__call__": __call__, "_interposed_on": original}
    module.__class__ = type(original.__name__, (original,), body)


def release(module: nn.Module) -> None:
    """Undo the last `interpose` of this module; nothing happens where there was none."""
    original = type(module).__dict__.get("_interposed_on")
    if original is not None:
        module.__class__ = original
