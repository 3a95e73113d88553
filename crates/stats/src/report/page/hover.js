"use strict";
// Shows the x value under the pointer and the value of each line there.
for (const svg of document.querySelectorAll("svg.figure")) {
  const axis = (text) => {
    const [scale, low, high] = text.split(" ");
    const log = scale === "log", a = log ? Math.log(low) : +low, b = log ? Math.log(high) : +high;
    return { log, value: (t) => log ? Math.exp(a + t * (b - a)) : a + t * (b - a) };
  };
  const { x, y, unit, plot } = svg.dataset;
  const [left, top, right, bottom] = plot.split(" ").map(Number);
  const across = axis(x), up = axis(y);
  const lines = [...svg.querySelectorAll(".line:not(.reference)")].map((path) => {
    let px = 0, py = 0;
    const corners = [...path.getAttribute("d").matchAll(/([MLHV])([\d.]+) ?([\d.]+)?/g)].map(([, c, m, n]) => {
      if (c === "V") py = +m; else px = +m;
      if (n) py = +n;
      return [px, py];
    });
    return { corners, label: path.dataset.label, path };
  });
  // The title would cover the readout as a tooltip.
  const title = svg.querySelector("title");
  svg.setAttribute("aria-label", title.textContent);
  title.remove();

  const box = svg.parentNode.appendChild(document.createElement("div"));
  box.className = "read-out";
  box.hidden = true;
  const cursor = svg.appendChild(document.createElementNS(svg.namespaceURI, "path"));
  const digits = (v) => String(v >= 100 ? Math.round(v) : +v.toPrecision(3));
  const height = ({ corners }, at) => {
    const next = corners.findIndex((c) => c[0] > at);
    if (next === 0 || !corners.length) return null;
    const [a, b] = next > 0 ? [corners[next - 1], corners[next]] : [corners.at(-1), null];
    return b ? a[1] + (b[1] - a[1]) * (at - a[0]) / (b[0] - a[0]) : a[1];
  };
  const hide = () => { box.hidden = true; cursor.setAttribute("d", ""); };
  const show = (event) => {
    const area = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / area.width;
    const at = (event.clientX - area.left) * scale;
    if (left > at || at > right) return hide();
    cursor.setAttribute("d", `M${at} ${top}V${bottom}`);
    box.replaceChildren(`${digits(across.value((at - left) / (right - left)))} ${unit}`);
    for (const line of lines) {
      const h = height(line, at);
      const v = h === null ? "–" : up.log && h >= bottom - 0.1 ? "0" : digits(up.value((bottom - h) / (bottom - top)));
      const row = box.appendChild(document.createElement("div"));
      row.textContent = `${line.label}: ${v}`;
      row.style.color = getComputedStyle(line.path).stroke;
    }
    box.hidden = false;
    const x = at / scale, room = x + box.offsetWidth + 24 > area.width;
    box.style.transform = `translate(${room ? x - box.offsetWidth - 12 : x + 12}px, ${top / scale + 8}px)`;
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", hide);
}
