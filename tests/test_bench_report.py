"""`mirror-mlx bench report`: what is known of each kind of file, and a page that is whole, safe and alone."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from mirror_mlx.bench import report
from mirror_mlx.bench.report_kinds import KINDS, recognise
from mirror_mlx.bench.report_plots import PLOTS, embedded
from mirror_mlx.bench.report_tables import TEXTS
from mirror_mlx.bench.report_text import table, text
from mirror_mlx.bench.report_timeline import Timeline
from mirror_mlx.cli.main import main
from mirror_mlx.messages import Outcome, Window
from mirror_mlx.trace import StepTrace, Trace

MS = 1_000_000
VOID = {"meta", "br", "img", "input", "link", "hr"}
HOSTILE = '</script><script>alert(1)</script><img src=x onerror=alert(2)>" onload="alert(3) $\\frac{ & \ud800\x00'


def run_of(steps=9, name="verify"):
    trace = Trace()
    trace.add("target", "prefill", -1, 0, 3 * MS)
    for step in range(steps):
        at = (4 + 20 * step) * MS
        trace.add("target", name, step, at, at + 10 * MS)
        trace.add("draft", "glue", step, at, at + 2 * MS)
        trace.add("draft", "pass", step, at + 3 * MS, at + 9 * MS)
        trace.steps.append(StepTrace(step, Window((1, 2), "hit"), Outcome(2, 5), roots=4, next="hit"))
    return trace.chrome()


def law():
    times = {
        "verify_ms": 91.727, "step_ms": 92.7226, "draft_ms": 82.0382, "hidden_draft_ms": 81.5, "pass_ms": 12.0117,
        "step_over_verify": 1.0109, "hidden_share": 0.9993, "rendezvous_us": 16.575, "hit_rate": 0.875,
        "tokens_per_step": 3.25, "steps": 101,
    }  # fmt: skip
    return times | {
        "unpaced": times | {"step_ms": 93.3669}, "hit_rate_by_row": [None, 0.5, 0.75],
        "steps_by_next": {"hit": 88, "jit": 13},
        "step_ms_by_next": {"hit": 92.7, "jit": 181.4}, "step_ms_p10_p90": [90.6, 101.7], "tap_ms": 47.2,
        "draft_serial_ms": 84.1, "draft_serial_over_verify": 0.92, "after_glue_ms": 79.7, "after_tap_ms": None,
        "fits": False, "identical": True, "other_programs_cores": 0.4, "lab": {"params": 160_004_864, "cores": "two"},
    }  # fmt: skip


def sweep():
    base = {
        "measured_ms": 95.25, "predicted_ms": 94.75, "error": -0.0052, "verify_ms": 90.5, "tap_ms": None,
        "pass_ms": 10.25, "passes": 7, "hit_rate": 0.9, "tokens_per_step": 3.5, "fits": True, "identical": True,
    }  # fmt: skip
    points = [base | {"factor": None, "value": None}, base | {"factor": "kappa", "value": 2, "fits": False}]
    return {"points": points, "worst_error": 0.031, "median_error": 0.005, "lab": {"kappa": 8}}


def tap():
    rates = {"hit_rate": [0.125, 0.625], "hit_rate_given_rejection": [0.1, 0.5]}
    source = {
        "by_kappa": rates | {"miss_rate": [0.875, 0.375], "miss_rate_given_rejection": [0.9, 0.5]}, "per_row": rates,
        "per_step": rates, "by_row": [0.25, 0.375], "as_run": {"hit_rate": 0.5},
    }  # fmt: skip
    at = {
        "temperature": 0.0, "steps": 40, "steps_by_row": [17, 23], "draft": source,
        "taps": [{"exit_layer": 4, "lens": "plain", "tap": source, "hybrid": source}],
    }  # fmt: skip
    return {
        "temperatures": [at], "kappas": [1, 2], "per_row": [2, 4], "per_step": [4, 8], "exit_layer": 4,
        "setup": {"layers": 8},
    }  # fmt: skip


def spec():
    spread = {"mean": 1.75, "min": 1.5, "max": 2.0}
    cell = dict.fromkeys(("tokens_per_second", "speedup", "official_speedup", "decode_speedup"), spread) | {
        "tokens_per_step": 3.25, "hit_rate": 0.875, "new_tokens": 1234,
    }  # fmt: skip
    identical = {"same": 6, "of": 6, "first": None, "reason": None}
    rows = [
        {
            "method": name, "tasks": {"qa": cell, "rag": cell, "overall": cell}, "identical": identical, "where": None,
            "reasons": {}, "cut_short": 0, "other_programs_cores": 0.0,
        }
        for name in ("plain", "mirror")
    ]  # fmt: skip
    at = {
        "temperature": 0.0, "tasks": ["qa", "rag", "overall"], "methods": rows, "best": {}, "fastest": "mirror",
    }  # fmt: skip
    setup = {
        "draft_model": "draft", "streaming_draft": None, "pass_ms": 0, "asked_by_category": {"qa": 6}, "options": {},
        "versions": {"mlx": "0.32"}, "model": "demo", "target_parameters": 8e6, "params": 0, "dtype": "float32",
        "max_tokens": 64, "runs": 3, "warmups": 1, "warmup_tokens": 8, "machine": "x86", "blas": "one",
        "python": "3.11",
    }  # fmt: skip
    return {
        "temperatures": [at], "methods": {"plain": "mlx-lm", "mirror": "ours"}, "setup": setup, "finished": True,
        "left_out": {"methods": {}, "questions": 0}, "answers": {"had": 6, "wanted": 6}, "resumed": 0,
    }  # fmt: skip


def variants(name="mirror, draft"):
    row = {
        "variant": name, "mode": "mirror", "temperature": 1.0, "tokens_per_step": 3.91, "hit_rate": None,
        "passes_per_window": 3, "tokens_per_pass": 2.33, "pass_ms": 4.1, "window_ms": 12.5, "verify_ms": 9.1,
        "tokens_per_second": 179.6, "steps": 310, "identical": True,
    }  # fmt: skip
    against = {"variant": name, "temperature": 1.0, "window_time_ratio": 0.47, "tokens_per_step_ratio": 0.94}
    return {"setup": {"model": name, "other_programs_cores": 0.0}, "variants": [row], "streaming": [against]}


def hosts(name="reference"):
    row = {
        "host": name, "temperature": 0.0, "same_proposals": 0.9931, "proposals": 4321, "tokens_per_step": 4.05,
        "draft_ms": 15.2, "tokens_per_second": 88.8, "speed": 0.81, "identical": True,
    }  # fmt: skip
    return {"setup": {"model": "demo", "other_programs_cores": None}, "hosts": [row]}


def contend():
    row = {
        "load": "none", "kind": "none", "plain_tokens_per_second": 12.8, "tokens_per_second": 33.7, "speed": 2.63,
        "speed_min_max": [2.41, 2.87], "step_ms": 101.5, "verify_ms": 99.4, "hit_rate": 0.91, "hidden_share": 0.97,
        "identical": False, "load_cores": 1.01,
    }  # fmt: skip
    return {"setup": {"params": 0}, "loads": [row]}


def auto():
    row = {
        "draft": "random", "params": 8_000_000, "plain_tokens_per_second": 151.3, "tokens_per_second": 150.9,
        "speed": 0.997, "speed_min_max": [0.96, 1.01], "tokens": 296, "identical": True, "other_programs_cores": 0.0,
    }  # fmt: skip
    return {"setup": {"model": "demo"}, "drafts": [row]}


def choices():
    row = {
        "params": 0, "pass_ms": 5.0, "temperature": 1.0, "prompts": "own", "plain": 31.5, "best": "mirror exact 7",
        "best_rate": 84.25, "auto": 83.75, "share": 0.99, "hybrid": None, "plan": {"error": 0.07}, "identical": True,
    }  # fmt: skip
    return {"setup": {"model": "demo"}, "settings": [row], "worst_share": 0.99}


def through():
    rates = {"before": 20.5, "under": 11.25, "after": 20.75}
    row = {
        "load": "the draft's core", "rates": {"ar": rates, "auto": rates}, "under_load": 1.02, "least_under_load": 0.99,
        "recovered": 0.98, "identical": True,
    }  # fmt: skip
    return {"setup": {"params": 0}, "through": [row]}


def plan():
    row = {
        "mode": "mirror", "setting": "mirror: windows of 7", "step_ms": 91.5, "hit_ms": 90.0, "miss_ms": 120.25,
        "tokens_per_step": 4.5, "tokens_per_second": 49.2, "speed": 3.41,
    }  # fmt: skip
    return {"modes": [row], "about": "demo on this machine", "costs": {}}


def convert():
    row = {
        "precision": "int8", "seconds": 61.3, "peak_bytes": 3_456_000_000, "peak_ratio": 2.87, "packages": 5,
        "peak_ratio_above_baseline": 2.51, "largest_package_bytes": 311_000_000, "below_limit": True,
        "head_part_rows": 16384, "parity": {"agreement": 0.998},
    }  # fmt: skip
    return {"draft": {"name": "random weights", "parameters": 596_049_920}, "conversions": [row]}


SAMPLES = {
    "trace": run_of(), "law": law(), "sweep": sweep(), "tap": tap(), "spec": spec(), "variants": variants(),
    "hosts": hosts(), "contend": contend(), "through": through(), "auto": auto(), "choices": choices(), "plan": plan(),
    "convert": convert(),
    "training": [
        {"kind": "tap", "batch_size": 8, "length": 512, "step_s": 1.75, "tokens_per_second": 2340.5, "peak_mb": 987.6}
    ],
    "problems": {"asked": 200, "right": 166, "right_share": 0.83, "ended_share": 0.985, "repeating_share": 0.0},
}  # fmt: skip
SAID = {
    "trace": ["verify", "glue", "10", "90"], "law": ["92.7", "93.4", "181.4", "90.6 … 101.7", "0.875", "160,004,864"],
    "sweep": ["95.2", "94.8", "kappa 2", "-0.5%"], "tap": ["0.125", "0.625", "0.375", "17"],
    "spec": ["1.75 (1.50…2.00)", "3.25", "88%"], "variants": ["179.6", "2.33", "0.47", "310"],
    "hosts": ["99.31%", "4321", "0.81"],
    "contend": ["33.7", "2.41 … 2.87", "NO"], "through": ["11.2", "20.8"], "auto": ["0.997", "0.96 … 1.01"],
    "choices": ["0.99", "mirror exact 7", "7%"], "plan": ["120.2", "3.41"], "convert": ["3,456", "2.87", "0.998"],
    "training": ["2340", "1.75", "988"], "problems": ["166", "0.83"],
}  # fmt: skip


class Page(HTMLParser):
    """What a page holds; a tag that is not closed, or closed twice, is a mistake."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.attributes, self.cells, self.scripts, self.words, self._open = [], [], [], [], "", []
        self.feed(content)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("td", "dd"):
            self.cells.append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words += data
        if "script" in self._open:
            self.scripts.append(data)
        elif self._open and self._open[-1] in ("td", "dd"):
            self.cells[-1] += data


@pytest.fixture
def files(tmp_path):
    def made(**of):
        paths = []
        for name, data in of.items():
            paths.append(tmp_path / f"{name}.json")
            paths[-1].write_text(json.dumps(data))
        return [str(path) for path in paths]

    return made


def test_each_kind_is_known_by_its_keys():
    assert set(SAMPLES) == set(KINDS) == set(TEXTS) >= set(PLOTS)
    for name, data in SAMPLES.items():
        assert [kind for kind in KINDS if KINDS[kind].has(data)] == [name]
        assert recognise(data) == name
    assert recognise(SAMPLES["trace"]["traceEvents"]) == "trace"
    for other in ({}, [], [1], "text", None, {"hosts": 1}, [{"kind": "tap"}]):
        assert recognise(other) is None


def test_a_page_of_everything(files, tmp_path, capsys):
    out = tmp_path / "all.html"
    assert main(["bench", "report", *files(**SAMPLES), "--out", str(out), "--title", "All of it"]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: {len(SAMPLES)} files, ")
    content = out.read_text(encoding="utf-8")
    page = Page(content)
    for name, data in SAMPLES.items():
        wanted = [cell for one in TEXTS[name](data).tables for row in one.rows for cell in row]
        assert wanted
        assert set(wanted) <= set(page.cells), name
        assert set(SAID[name]) <= set(page.cells), name
        assert f"{name}.json" in page.words
        assert KINDS[name].command in page.words
    assert "mirror-mlx 0." in page.words
    assert "Other programs took 0.40 cores" in page.words
    assert page.tags.count("canvas") == 1
    assert page.tags.count("svg") >= len(PLOTS)
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_page_asks_nobody(files, tmp_path):
    report.write(files(**SAMPLES), tmp_path / "all.html")
    content = (tmp_path / "all.html").read_text(encoding="utf-8")
    assert re.findall(r"\w*:?//\w", re.sub(r'<script type="application/json">.*?</script>', "", content)) == []
    assert not re.search(r"@import|@font-face|url\((?!#)", content)
    page = Page(content)
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    addresses = [value for _, name, value in page.attributes if name in ("src", "href", "xlink:href", "action")]
    assert all(value.startswith("#") for value in addresses)
    known = {value for _, name, value in page.attributes if name == "id"}
    assert {value[1:] for value in addresses} <= known
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def hostile():
    trace = run_of(name=HOSTILE)
    trace["traceEvents"][0]["args"]["name"] = HOSTILE
    return {"trace": trace, "variants": variants(HOSTILE), "hosts": hosts(HOSTILE)}


def test_text_from_files_stays_text(files, tmp_path):
    out = tmp_path / "hostile.html"
    name = tmp_path / "<b onclick='alert(4)'>&.json"
    name.write_text(json.dumps(SAMPLES["hosts"]))
    report.write([*files(**hostile()), str(name)], out, title=HOSTILE)
    page = Page(out.read_text(encoding="utf-8"))
    assert "img" not in page.tags
    assert "b" not in page.tags
    assert page.tags.count("script") == 2  # a trace's data, and the page's own
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert sum("alert" in script for script in page.scripts) == 1
    data = json.loads(next(script for script in page.scripts if "alert" in script))
    assert any(name.startswith("</script>") for name in data["names"])
    assert "<img src=x onerror=alert(2)>" in page.words
    assert "<b onclick='alert(4)'>&.json" in page.words


def test_a_timeline_has_lanes_and_begins_with_the_first_steps():
    line = Timeline.of(SAMPLES["trace"])
    assert line.lanes == ["target (GPU)", "draft (Neural Engine)"]
    assert len(line.spans) == 1 + 3 * 9
    assert line.view() == (24_000, 134_000)
    assert Timeline.of(run_of(steps=2)).view() == (0, 34_000)
    verify = next(span for span in line.spans if span.name == "verify")
    assert (verify.lane, verify.step, verify.start, verify.duration) == (0, 0, 4000, 10_000)
    assert verify.note == "source hit, accepted 2, token 5, roots 4, next hit"
    payload = line.payload()
    assert payload["spans"][0] == [0, payload["names"].index("prefill"), -1, 0, 3000, ""]
    other = [{"ph": "X", "pid": 7, "tid": 1, "name": "work", "ts": 5, "dur": 2}, {"ph": "B", "pid": 7, "name": "no"}]
    assert Timeline.of(other).payload()["spans"] == [[0, 0, None, 0, 2, ""]]


def test_figures_are_rounded_to_what_a_reader_needs():
    assert [text(value) for value in (0.123456, 1.2345, 12.345, 1234.5, 123456.7, 0.5, 2.0, 12345, 1234)] == [
        "0.123", "1.23", "12.3", "1234", "123,457", "0.5", "2", "12,345", "1234",
    ]  # fmt: skip
    assert [text(value) for value in (None, "", True, False, [], [1, None], {"a": 1.5})] == [
        "–", "–", "yes", "NO", "–", "1, –", "a 1.5",
    ]  # fmt: skip
    found = table("", [{"a_b": 1}, {"c": 2.0}])
    assert (found.columns, found.rows) == (["a b", "c"], [["1", "–"], ["–", "2"]])


def test_a_picture_takes_on_the_page():
    svg = (
        '<?xml version="1.0"?><!DOCTYPE svg><svg xmlns="x" width="9pt" viewBox="0 0 1 1"><metadata>a</metadata>'
        '<style>*{}</style><!-- b --><path id="p" style="stroke: #010203; fill: #444444"/>'
        '<use xlink:href="#p" clip-path="url(#c)"/><text>id="p" #010203</text></svg>\n'
    )
    assert embedded(svg, "f1") == (
        '<svg viewBox="0 0 1 1"><path id="f1-p" style="stroke: currentColor; fill: currentColor"/>'
        '<use href="#f1-p" clip-path="url(#f1-c)"/><text>id="p" #010203</text></svg>'
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no file"),
        ("", "given.json: it is empty: give files that bench's --json or generate --trace wrote"),
        ("{", "given.json: it is no JSON"),
        ("[" * 100_000, "given.json: it is no JSON"),
        ('{"hello": 1}', "given.json: unknown: it is none of what these write: generate --trace, bench law --json"),
        ("NaN", "given.json: unknown"),
        ('{"hosts": "many", "setup": {}}', "given.json: it is incomplete"),
        ('{"hosts": [{"host": "mlx"}], "setup": {}}', "is incomplete (no 'temperature'): write it again with"),
        ('{"traceEvents": []}', "given.json: it is incomplete (0 spans on 0 lanes)"),
        ('{"verify_ms": 1, "step_over_verify": 1, "lab": {}}', "given.json: it is incomplete (no 'step_ms')"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used(tmp_path, capsys, content, says):
    file, out = tmp_path / "given.json", tmp_path / "page.html"
    if content is not None:
        file.write_text(content)
    assert main(["bench", "report", str(file), "--out", str(out)]) == 2
    said, error = capsys.readouterr()
    assert (said, error.count("\n")) == ("", 1)
    assert says in error
    assert not out.exists()


def test_other_mistakes_are_one_line(files, tmp_path, capsys, monkeypatch):
    good = files(hosts=SAMPLES["hosts"])
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe")
    for words, said in (
        ([*good, "--out", "/nowhere/at/all.html"], "--out /nowhere/at/all.html cannot be written"),
        ([*good, "--out", "page.txt"], "ends in .html"),
        ([str(binary), "--out", str(tmp_path / "a.html")], "is not UTF-8 text"),
        ([str(tmp_path), "--out", str(tmp_path / "a.html")], "cannot be read: Is a directory"),
    ):
        assert main(["bench", "report", *words]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "report"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setattr("mirror_mlx.cli.bench_report.find_spec", lambda name: None)
    assert main(["bench", "report", *good, "--out", str(tmp_path / "a.html")]) == 2
    assert "bench report needs matplotlib: pip install 'mirror-mlx[plot]'" in capsys.readouterr().err


def test_a_page_that_was_there_stays_when_nothing_can_be_made(files, tmp_path, capsys):
    out = tmp_path / "page.html"
    out.write_text("before")
    assert main(["bench", "report", *files(bad={"x": 1}), "--out", str(out)]) == 2
    assert out.read_text() == "before"
    assert main(["bench", "report", *files(hosts=SAMPLES["hosts"]), "--out", str(out)]) == 0
    assert out.read_text().startswith("<!DOCTYPE html>")


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ACTIONS = """
const figure = document.querySelector(".timeline"), canvas = figure.querySelector("canvas"), log = [];
const box = canvas.getBoundingClientRect();
const send = (kind, name, more) => canvas.dispatchEvent(new kind(name, Object.assign(
  { bubbles: true, cancelable: true, clientX: box.left + box.width / 2, clientY: box.top + 45, pointerId: 1 }, more)));
const note = () => log.push(figure.dataset.view.split(" ").map(Number));
canvas.setPointerCapture = () => {};
note();
send(WheelEvent, "wheel", { deltaY: -100 });
note();
figure.querySelector("[data-act=all]").click();
note();
figure.querySelector("[data-act=first]").click();
send(PointerEvent, "pointerdown", {});
send(PointerEvent, "pointermove", { clientX: box.left + box.width / 4 });
note();
send(PointerEvent, "pointerup", {});
figure.querySelector("[data-act=first]").click();
send(PointerEvent, "pointermove", { clientX: box.left + 5 });
document.documentElement.dataset.tip = figure.querySelector(".tip").textContent;
document.documentElement.dataset.log = JSON.stringify(log);
"""


def dumped(page, folder):
    """The page's elements as a browser has them after its scripts."""
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--dump-dom",
    ]  # fmt: skip
    command = [BROWSER, *flags, f"--user-data-dir={folder}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return {name: value for tag, name, value in Page(done.stdout).attributes if name.startswith("data-")}


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_a_browser_draws_the_timeline(files, tmp_path):
    page = tmp_path / "page.html"
    report.write(files(trace=SAMPLES["trace"]), page)
    found = dumped(page, tmp_path / "browser")
    assert found["data-script"] == "ran"
    assert int(found["data-drawn"]) >= 18
    # The page's own policy would not let this script run.
    content = re.sub("<meta http-equiv[^>]*>", "", page.read_text(encoding="utf-8"))
    page.write_text(content.replace("</body>", f"<script>{ACTIONS}</script></body>"), encoding="utf-8")
    found = dumped(page, tmp_path / "browser")
    first, zoomed, whole, dragged = json.loads(found["data-log"])
    assert first == [24_000, 134_000]
    assert first[0] < zoomed[0] < zoomed[1] < first[1]
    assert whole == [0, 174_000]
    assert dragged == pytest.approx([first[0] + 27_500, first[1] + 27_500], abs=200)
    assert found["data-tip"].startswith("verify, step 1\n10.0 ms, from 24.00 ms\nsource hit, accepted 2")


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_a_browser_runs_nothing_from_a_file(files, tmp_path):
    page = tmp_path / "page.html"
    data = hostile()
    attack = "</script><script>document.documentElement.dataset.attacked = 1</script>"
    data["trace"]["traceEvents"][1]["args"]["name"] = attack
    report.write(files(**data, more=hosts(attack)), page)
    found = dumped(page, tmp_path / "browser")
    assert found["data-script"] == "ran"
    assert "data-attacked" not in found
