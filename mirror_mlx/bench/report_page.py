"""The page of a report: HTML that needs nothing but itself. All text is escaped here, and only here. Pure."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from typing import Any

from mirror_mlx.bench.report_script import SCRIPT
from mirror_mlx.bench.report_text import Table, Text, text, titled

_STYLE = """\
:root { color-scheme: light dark; --ink: #1c2128; --soft: #5b6470; --paper: #ffffff; --card: #f5f6f8; --line: #d9dde3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dfe4ea; --soft: #98a2ae; --paper: #14181d; --card: #1c2229; --line: #333c46; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 68rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 0; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
p { margin: .3rem 0; } .soft, figcaption { color: var(--soft); } code { font: .9em ui-monospace, Menlo, monospace; }
section { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: 1.2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .6rem 0; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; margin: .5rem 0; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; padding-left: 0; }
tbody tr:hover { background: var(--card); }
figure { margin: 1rem 0; position: relative; } figure > svg { width: 100%; height: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
details summary { cursor: pointer; color: var(--soft); }
.timeline canvas { width: 100%; display: block; cursor: grab; touch-action: pan-y;
  color: var(--ink); border-radius: 4px; }
.timeline canvas:active { cursor: grabbing; }
.tip { position: absolute; z-index: 1; pointer-events: none; white-space: pre;
  background: var(--card); color: var(--ink); border: 1px solid var(--line);
  border-radius: 4px; padding: .3rem .6rem; font-size: .85rem; }
.bar { display: flex; flex-wrap: wrap; gap: .4rem 1rem; align-items: center; margin-bottom: .5rem; font-size: .85rem; }
.bar button { font: inherit; min-width: 2rem; padding: .1rem .5rem; color: var(--ink); background: var(--card);
  border: 1px solid var(--line); border-radius: 4px; cursor: pointer; }
.key::before { content: ""; display: inline-block; width: .8em; height: .8em; margin-right: .35em; border-radius: 2px;
  background: var(--of); vertical-align: -.05em; }
@media print { .bar button, .tip { display: none; } section { break-inside: avoid; } }
"""
_BUTTONS = (
    ("in", "+", "zoom in"), ("out", "−", "zoom out"), ("back", "←", "earlier"), ("on", "→", "later"),
    ("first", "first steps", "the first steps"), ("all", "all", "the whole run"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Section:
    """What the page has of one file. pictures: <svg> elements, escaped already; timeline: `Timeline.payload()`."""

    title: str
    name: str
    command: str
    written: str
    text: Text
    pictures: Sequence[str] = field(default=())
    timeline: Mapping[str, Any] | None = None


def page(title: str, facts: Mapping[str, Any], sections: Sequence[Section]) -> str:
    """The whole document. Its policy allows no request to anywhere, and no script but its own."""
    digest = base64.b64encode(sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    contents = "".join(
        f'<li><a href="#file-{number}">{escape(one.title)}</a> <span class="soft">{escape(one.name)}</span></li>'
        for number, one in enumerate(sections, start=1)
    )
    body = "\n".join(_section(number, one) for number, one in enumerate(sections, start=1))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{_STYLE}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
{_facts(facts)}
<ol>{contents}</ol>
</header>
{body}
<script>{SCRIPT}</script>
</body>
</html>
"""


def _section(number: int, one: Section) -> str:
    parts = [
        f'<section id="file-{number}">\n<h2>{escape(one.title)}</h2>',
        f'<p class="soft">{escape(one.name)}, written {escape(one.written)} by <code>{escape(one.command)}</code></p>',
    ]
    if one.timeline is not None:
        parts.append(_timeline(one.timeline))
    parts += [f"<figure>{picture}</figure>" for picture in one.pictures]
    parts += [_table(table) for table in one.text.tables]
    parts += [f"<p>{escape(line)}</p>" for line in one.text.lines]
    if one.text.facts:
        parts.append(f"<details open><summary>Measured with</summary>{_facts(one.text.facts)}</details>")
    return "\n".join([*parts, "</section>"])


def _facts(facts: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<dt>{escape(titled(name))}</dt><dd>{escape(text(value))}</dd>"
        for name, value in facts.items()
        if value is not None
    )
    return f"<dl>{rows}</dl>"


def _table(table: Table) -> str:
    title = f"<h3>{escape(table.title[:1].upper() + table.title[1:])}</h3>" if table.title else ""
    head = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in table.columns)
    rows = "\n".join("<tr>" + "".join(f"<td>{escape(value)}</td>" for value in row) + "</tr>" for row in table.rows)
    return f'{title}<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>'


def _timeline(payload: Mapping[str, Any]) -> str:
    data = json.dumps(payload, separators=(",", ":")).replace("<", "\\u003c")  # no text in it can end the element
    buttons = "".join(
        f'<button type="button" data-act="{act}" title="{what}" aria-label="{what}">{sign}</button>'
        for act, sign, what in _BUTTONS
    )
    keys = "".join(
        f'<span class="key" style="--of: {colour}">{escape(name)}</span>'
        for name, colour in zip(payload["names"], payload["colours"], strict=True)
    )
    lanes = escape(", ".join(payload["lanes"]))
    return f"""<figure class="timeline">
<div class="bar"><span>{buttons}</span>{keys}</div>
<canvas tabindex="0" role="img" aria-label="timeline: {lanes}"></canvas>
<div class="tip" hidden></div>
<script type="application/json">{data}</script>
<figcaption>Wheel or + and − zoom, dragging or arrow keys pan; point at a span to read it.</figcaption>
<noscript>The timeline is drawn by a script, which is switched off here.</noscript>
</figure>"""
