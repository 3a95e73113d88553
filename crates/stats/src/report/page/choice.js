"use strict";
// Adds a row of buttons for each option in which the figures of a choice differ. Shows the figure
// whose options are all selected.
for (const place of document.querySelectorAll(".choice")) {
  const figures = [...place.querySelectorAll("figure")];
  const options = figures.map((figure) => JSON.parse(figure.dataset.options));
  const chosen = [...options[0]];
  const rows = chosen.map((_, row) => [...new Set(options.map((of) => of[row]))]);
  const buttons = [];
  const show = () => {
    figures.forEach((figure, i) => { figure.hidden = options[i].some((option, row) => option !== chosen[row]); });
    for (const { button, row, option } of buttons) button.setAttribute("aria-pressed", chosen[row] === option);
  };
  const choose = (row, option) => {
    chosen[row] = option;
    // If a combination does not exist, the last selection decides.
    const there = options.find((of) => of.every((it, i) => it === chosen[i])) ?? options.find((of) => of[row] === option);
    chosen.splice(0, chosen.length, ...there);
    show();
  };
  const bars = rows.filter((of) => of.length > 1).map((of) => {
    const row = rows.indexOf(of), bar = document.createElement("div");
    bar.className = "options";
    bar.setAttribute("role", "group");
    for (const option of of) {
      const button = bar.appendChild(document.createElement("button"));
      button.textContent = option;
      button.addEventListener("click", () => choose(row, option));
      buttons.push({ button, row, option });
    }
    return bar;
  });
  place.prepend(...bars);
  show();
}
