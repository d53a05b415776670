"""What an examination comes to: one line, and what to do about it."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from mirror_mlx.errors import MirrorError

Status = Literal["ok", "note", "failed", "skipped"]
Work = Callable[[], tuple[str, Mapping[str, Any]]]
"""Examines one thing: what to say of it, and its figures. Raises `Trouble`, or any error of ours."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    status   "ok"; "note": it works, and could be better; "failed"; "skipped": it cannot be examined here
    said     what was found
    advice   what to do, where `said` does not say it
    figures  numbers by name: ms are medians, shares 0…1
    """

    group: str
    name: str
    status: Status
    said: str
    advice: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Trouble(Exception):  # noqa: N818, not an error of ours but what an examination has found
    """Something is not as it should be. status: "failed", or "note" where it only could be better."""

    def __init__(
        self, said: str, advice: str, figures: Mapping[str, Any] | None = None, status: Status = "failed"
    ) -> None:
        super().__init__(said)
        self.finding = status, said, advice, figures or {}


def attempt(group: str, name: str, work: Work) -> Finding:
    """Examine one thing; whatever is raised becomes a finding, so that the others are examined too."""
    try:
        said, figures = work()
    except Trouble as trouble:
        status, said, advice, figures = trouble.finding
        return Finding(group, name, status, said, advice, figures)
    except MirrorError as error:
        return Finding(group, name, "failed", " ".join(str(error).split()))
    except Exception as error:  # a fault of ours, or of a library on a machine we have not seen
        said = " ".join(f"{type(error).__name__}: {error}".split())
        return Finding(
            group, name, "failed", said, "please report this line with the output of mirror-mlx doctor --json"
        )
    return Finding(group, name, "ok", said, figures=figures)
