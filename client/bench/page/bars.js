// Bars of parts: colours with stripes and dots, which differ on any paper. `parts`: [[name, words,
// look]] in their order; a look is plain, striped or dotted.
function patterns() {
  const square = (look, above) => svg(
    "pattern", { id: "part-" + look, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
    svg("rect", { class: "under-" + look, width: 8, height: 8 }), above);
  return svg("defs", {}, square("striped", svg("path", { class: "stripe", d: "M0 8L8 0" })),
             square("dotted", svg("circle", { class: "dot", cx: 4, cy: 4, r: 1.3 })));
}
function part(look, x, y, width, height, words) {
  const inside = look === "plain" ? {} : { fill: `url(#part-${look})` };
  return svg("rect", { class: `part part-${look}`, x, y, width, height, ...inside },
             svg("title", {}, words));
}
// Its patterns are those of the page's first chart of bars.
function partsLegend(parts) {
  const sample = ([name, , look]) => svg("svg", { width: 34, height: 16, "aria-hidden": "true" },
                                         part(look, 1, 1, 32, 14, name));
  return html("ul", { class: "legend" },
              ...parts.map(one => html("li", {}, sample(one), one[1])));
}

// `rows`: [{name, whole, parts: {name: ns}}]; a part that is not known, or below 0, is not drawn; a
// line stands at the whole, where there is one. `title`: what the times are.
function bars(name, rows, parts, title) {
  const step = 26, left = 232, bottom = kTop + rows.length * step;
  const time = (row, part) => Math.max(row.parts[part] ?? 0, 0);
  const sum = row => parts.reduce((all, [part]) => all + time(row, part), 0);
  const ticks = roundTicks(Math.max(...rows.map(row => Math.max(sum(row), row.whole ?? 0))));
  const place = linearScale(ticks[ticks.length - 1], left, kWidth - kRight - 16);
  const drawn = rows.flatMap((row, index) => {
    const y = kTop + index * step + 4, pieces = [label(left - 6, y + 14, "end", row.name)];
    let from = 0;
    for (const [each, words, look] of parts) {
      const to = from + time(row, each);
      if (to > from)
        pieces.push(part(look, place(from), y, place(to) - place(from), 18,
                         `${row.name}, ${words}: ${showTime(to - from)}`));
      from = to;
    }
    if (row.whole !== undefined)
      pieces.push(line("whole", place(row.whole), y - 2, place(row.whole), y + 20));
    return pieces;
  });
  return picture(name, bottom + kBottom, patterns(),
                 horizontalAxis(ticks, place, showTime, title, left, bottom), ...drawn);
}
