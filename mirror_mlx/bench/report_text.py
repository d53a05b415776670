"""Figures as a reader wants them: sensibly rounded, and as tables. Pure: plain data in, text out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Form = str | Callable[[Any], str] | None
"""How a figure is written: a format, a function, or as `text` does."""
Column = tuple[str, str, Form]
"""Key, title, form."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under columns; the first column says what a row is about."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Text:
    """What is said about a file: what was measured, tables, and sentences below them."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    lines: Sequence[str] = ()


def text(value: Any) -> str:
    """Anything that JSON holds, to four digits.

    >>> text(0.123456), text(92.7226), text(160004864), text(None), text(True), text([1, 2.5]), text({"hit": 3})
    ('0.123', '92.7', '160,004,864', '–', 'yes', '1, 2.5', 'hit 3')
    """
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {text(item)}" for key, item in value.items()) or "–"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(text(item) for item in value) or "–"
    return str(value)


def _float(value: float) -> str:
    size = abs(value)
    if size >= 10_000:
        return f"{value:,.0f}"
    digits = 0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 1 else 3
    shown = f"{value:.{digits}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown and float(shown) == value else shown


def cell(value: Any, form: Form) -> str:
    """A figure in a table.

    >>> cell(0.5, "{:.0%}"), cell(None, "{:.0%}"), cell(True, "{}")
    ('50%', '–', 'yes')
    """
    if value is None or isinstance(value, bool) or form is None:
        return text(value)
    return form.format(value) if isinstance(form, str) else form(value)


def table(title: str, rows: Iterable[Mapping[str, Any]], columns: Sequence[Column] = ()) -> Table:
    """Of flat objects. columns: which keys, in which order and form; none: all that any row has, as they come."""
    rows = list(rows)
    if not columns:
        keys = dict.fromkeys(key for row in rows for key in row)
        columns = [(key, titled(key), None) for key in keys]
    return Table(
        title, [name for _, name, _ in columns],
        [[cell(row.get(key), form) for key, _, form in columns] for row in rows],
    )  # fmt: skip


def titled(key: str) -> str:
    """A key as a person says it.

    >>> titled("max_roots"), titled("step_ms")
    ('max roots', 'step ms')
    """
    return str(key).replace("_", " ")


def megabytes(value: float) -> str:
    return f"{value / 1e6:,.0f}"


def between(values: Sequence[float] | None, form: str = "{:.1f}") -> str:
    """
    >>> between([1.0, 2.55]), between([])
    ('1.0 … 2.5', '')
    """
    return " … ".join(form.format(value) for value in values or ())
