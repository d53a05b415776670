"""The script of a report's page: it draws the timelines, and lets one zoom, pan and point at a span."""

SCRIPT = """\
"use strict";
function timeline(figure) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const canvas = figure.querySelector("canvas"), tip = figure.querySelector(".tip");
  const top = 24, lane = 46, bar = 26, least = 5;
  const end = data.spans.reduce((most, s) => Math.max(most, s[3] + s[4]), 1);
  let from = data.view[0], to = Math.max(data.view[1], from + least), drag = null, width = 0;

  const x = (time) => (time - from) / (to - from) * width;
  const time = (pixel) => from + pixel / width * (to - from);
  const ms = (us) => us < 100 ? us.toFixed(1) + " µs" : (us / 1e3).toFixed(us >= 1e5 ? 0 : us >= 1e4 ? 1 : 2) + " ms";

  function look(first, last) {
    const range = Math.min(Math.max(last - first, least), end);
    const middle = (first + last) / 2;
    from = Math.min(Math.max(middle - range / 2, 0), end - range);
    to = from + range;
    draw();
  }
  function zoom(factor, at) {
    const first = at - (at - from) * factor;
    look(first, first + (to - from) * factor);
  }
  function pan(share) { look(from + share * (to - from), to + share * (to - from)); }

  function ticks(pen, ink, height) {
    const rough = (to - from) / Math.max(width / 90, 1), power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const digits = Math.max(0, 3 - Math.floor(Math.log10(step) + 1e-9));
    pen.textAlign = "center";
    for (let n = Math.ceil(from / step); n * step <= to; n++) {
      const at = x(n * step);
      pen.globalAlpha = 0.15;
      pen.fillRect(at, top - 4, 1, height - top);
      pen.globalAlpha = 0.75;
      if (at > 20 && at < width - 30) pen.fillText((n * step / 1e3).toFixed(digits), at, 9);
    }
    pen.textAlign = "right";
    pen.fillText("ms", width - 2, 9);
    pen.globalAlpha = 1;
  }

  function draw() {
    const height = top + data.lanes.length * lane, ratio = window.devicePixelRatio || 1;
    width = Math.max(canvas.clientWidth, 50);
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d"), ink = getComputedStyle(canvas).color;
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.fillStyle = ink;
    ticks(pen, ink, height);
    pen.textAlign = "left";
    let drawn = 0;
    for (const s of data.spans) {
      if (s[3] > to || s[3] + s[4] < from) continue;
      const left = Math.max(x(s[3]), -2), right = Math.min(x(s[3] + s[4]), width + 2);
      const wide = Math.max(right - left, 0.6), y = top + s[0] * lane + 15;
      pen.fillStyle = data.colours[s[1]];
      pen.fillRect(left, y, wide > 3 ? wide - 0.6 : wide, bar);
      drawn++;
      const label = data.names[s[1]] + (s[2] === null || s[2] < 0 ? "" : " " + s[2]);
      if (wide > 24 && pen.measureText(label).width < wide - 8) {
        pen.fillStyle = "#0b0f14";
        pen.fillText(label, left + 4, y + bar / 2 + 1);
      }
    }
    pen.fillStyle = ink;
    pen.globalAlpha = 0.75;
    data.lanes.forEach((name, i) => pen.fillText(name, 2, top + i * lane + 6));
    pen.globalAlpha = 1;
    figure.dataset.drawn = String(drawn);
    figure.dataset.view = from.toFixed(1) + " " + to.toFixed(1);
  }

  function under(event) {
    const box = canvas.getBoundingClientRect(), at = time(event.clientX - box.left), y = event.clientY - box.top - top;
    const row = Math.floor(y / lane), slack = 2 * (to - from) / width;
    let best = null;
    if (y % lane < 13) return null;
    for (const s of data.spans)
      if (s[0] === row && s[3] - slack <= at && at <= s[3] + s[4] + slack && (!best || s[4] < best[4])) best = s;
    return best;
  }
  function point(event) {
    const s = under(event);
    tip.hidden = !s;
    if (!s) return;
    const step = s[2] === null ? "" : s[2] < 0 ? ", prompt" : ", step " + s[2];
    tip.textContent = data.names[s[1]] + step + "\\n" + ms(s[4]) + ", from " + (s[3] / 1e3).toFixed(2) + " ms"
      + (s[5] ? "\\n" + s[5] : "");
    const box = figure.getBoundingClientRect();
    tip.style.left = Math.max(0, Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth - 4)) + "px";
    tip.style.top = event.clientY - box.top + 16 + "px";
  }

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return pan(event.deltaX / width);
    const at = time(event.clientX - canvas.getBoundingClientRect().left);
    zoom(Math.exp(Math.max(-60, Math.min(event.deltaY, 60)) / 200), at);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    drag = { at: event.clientX, from: from, to: to };
    canvas.setPointerCapture(event.pointerId);
    tip.hidden = true;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return point(event);
    const moved = (event.clientX - drag.at) / width * (drag.to - drag.from);
    look(drag.from - moved, drag.to - moved);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  const acts = {
    "in": () => zoom(0.6, (from + to) / 2), "out": () => zoom(1 / 0.6, (from + to) / 2),
    "back": () => pan(-0.5), "on": () => pan(0.5), "all": () => look(0, end), "first": () => look(...data.view),
  };
  const keys = {
    "+": "in", "=": "in", "-": "out", "ArrowLeft": "back", "ArrowRight": "on", "0": "all", "Home": "first",
  };
  canvas.addEventListener("keydown", (event) => {
    const act = acts[keys[event.key]];
    if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); act(); }
  });
  for (const button of figure.querySelectorAll("button")) button.addEventListener("click", acts[button.dataset.act]);
  new ResizeObserver(draw).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  look(from, to);
}
document.querySelectorAll(".timeline").forEach(timeline);
document.documentElement.dataset.script = "ran";
"""
