// Inspects a page in a frame of the same origin and lists its faults.
addEventListener("load", () => {
  const view = document.querySelector("iframe").contentWindow;
  const page = view.document, faults = [];
  const complain = (condition, fault) => { if (condition) faults.push(fault); };
  const shown = (element) => element.getClientRects().length > 0;

  const root = page.documentElement;
  complain(root.scrollWidth > view.innerWidth, `the page is ${root.scrollWidth} wide in ${view.innerWidth}`);
  for (const text of page.querySelectorAll("svg.figure text")) {
    const size = parseFloat(view.getComputedStyle(text).fontSize) * text.ownerSVGElement.getBoundingClientRect().width
      / text.ownerSVGElement.viewBox.baseVal.width;
    complain(shown(text) && size < 9, `"${text.textContent}" is ${size.toFixed(1)} pixels high`);
  }
  const checkCells = (selector, medium) => {
    for (const cell of page.querySelectorAll(selector)) {
      const text = page.createRange(), area = cell.closest(".table").getBoundingClientRect();
      text.selectNodeContents(cell);
      const right = text.getBoundingClientRect().right;
      complain(right > Math.min(area.right, view.innerWidth), `"${cell.textContent}" is cut off at the right${medium}`);
    }
  };
  // On a phone, other tables scroll below a sticky first column.
  checkCells(view.innerWidth > 680 ? "th, td" : ".judged td, th.section", "");
  for (const text of page.querySelectorAll("pre")) {
    complain(text.scrollWidth > text.clientWidth, `"${text.textContent}" is cut off at the right`);
  }
  for (const figure of page.querySelectorAll("figure")) {
    if (!shown(figure)) continue;
    const drawn = [...figure.querySelectorAll("svg")].filter(shown);
    complain(drawn.length !== 1, `${figure.id} has ${drawn.length} drawings`);
    for (const svg of drawn) {
      const area = svg.getBoundingClientRect();
      complain(area.width < 300 || area.height < 150, `${figure.id} is ${area.width} by ${area.height}`);
      complain(area.right > view.innerWidth, `${figure.id} is cut off at the right`);
    }
  }
  for (const svg of page.querySelectorAll("svg.figure")) {
    if (!shown(svg) || !svg.querySelector(".line:not(.reference)")) continue;
    const area = svg.getBoundingClientRect();
    const at = { clientX: area.left + area.width / 2, clientY: area.top + area.height / 2, bubbles: true };
    svg.dispatchEvent(new view.PointerEvent("pointermove", at));
    const box = svg.parentNode.querySelectorAll(".read-out");
    const open = [...box].filter((it) => !it.hidden);
    complain(open.length !== 1 || open[0].children.length === 0, "no read-out under the pointer");
    svg.dispatchEvent(new view.PointerEvent("pointerleave", { bubbles: true }));
    complain([...box].some((it) => !it.hidden), "the read-out stays");
  }
  for (const place of page.querySelectorAll(".choice")) {
    const figures = [...place.querySelectorAll("figure")];
    complain(figures.filter(shown).length !== 1, "not one figure of a choice is shown");
    const seen = new Set(figures.filter(shown));
    for (const first of place.querySelectorAll(".options:first-of-type button")) {
      first.click();
      for (const button of place.querySelectorAll("button")) {
        button.click();
        complain(button.getAttribute("aria-pressed") !== "true", `"${button.textContent}" is not pressed`);
        const now = figures.filter(shown);
        complain(now.length !== 1, `"${button.textContent}" shows ${now.length} figures`);
        now.forEach((figure) => seen.add(figure));
      }
    }
    for (const figure of figures) complain(!seen.has(figure), `${figure.id} cannot be chosen`);
  }
  for (const link of page.querySelectorAll("a[href^='#']")) {
    const to = page.getElementById(link.getAttribute("href").slice(1));
    complain(!to, `${link.getAttribute("href")} leads nowhere`);
  }
  // Applies the print styles to a screen as wide as A4 paper.
  for (const rule of [...page.styleSheets].flatMap((sheet) => [...sheet.cssRules])) {
    if (rule.media?.mediaText === "print") rule.media.mediaText = "all";
    else if (rule.media) rule.media.mediaText = "not all";
  }
  document.querySelector("iframe").width = 718;
  checkCells("th, td", " on paper");
  for (const figure of page.querySelectorAll(".choice figure")) {
    complain(!shown(figure), `${figure.id} is not printed`);
  }
  complain([...page.querySelectorAll(".options")].some(shown), "buttons are printed");
  complain(root.scrollWidth > view.innerWidth, `on paper the page is ${root.scrollWidth} wide in ${view.innerWidth}`);
  const findings = document.body.appendChild(document.createElement("pre"));
  findings.id = "findings";
  findings.textContent = faults.join("\n") || "no findings";
});
