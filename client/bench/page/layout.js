// What the page is made of: sections, and figures with a table beside each chart.

// `columns`: texts; `rows`: lists of cells, the first of which names the row. A cell is a text, or
// {long: text} for one that may wrap.
function table(caption, columns, rows, kind = "") {
  const cell = (value, index) => {
    const [name, attributes] = index === 0 ? ["th", { scope: "row" }] : ["td", {}];
    if (typeof value === "string") return html(name, attributes, value);
    return html(name, { ...attributes, class: "text long" }, value.long);
  };
  const heads = columns.map((name, index) =>
    html("th", { scope: "col", ...(index === 0 ? { class: "text" } : {}) }, name));
  return html("table", { class: kind }, html("caption", {}, caption),
              html("thead", {}, html("tr", {}, ...heads)),
              html("tbody", {}, ...rows.map(cells => html("tr", {}, ...cells.map(cell)))));
}
// A row for each of `names` ([text, value]), a column for each way.
function waysTable(caption, first, names, ways, cell) {
  return table(caption, [first, ...ways.map(wayName)],
               names.map(([name, value]) => [name, ...ways.map(way => cell(value, way))]));
}

// A table that scrolls by itself, also by keys.
function values(title, made, kind = "") {
  return html("div", { class: "values " + kind, tabindex: "0", role: "region",
                       "aria-label": "Values: " + title }, made);
}
// `how`: to read it.
function figure(title, how, keys, chart, made) {
  return html("figure", {}, html("h3", {}, title),
              html("div", { class: "beside" }, html("div", { class: "chart" }, keys, chart),
                   values(title, made)),
              html("figcaption", {}, how));
}
// Nothing without parts.
function section(id, title, introduction, ...parts) {
  if (parts.length === 0) return;
  const link = html("a", { href: "#" + id }, title);
  document.getElementById("sections").append(html("li", {}, link));
  const begin = introduction === "" ? [] : [html("p", {}, introduction)];
  document.getElementById("main").append(
    html("section", { id, "aria-labelledby": id + "-title" },
         html("h2", { id: id + "-title" }, title), ...begin, ...parts));
}

// What a mark says of itself.
function spoken(one, value) { return `${wayName(one.way)}, ${one.name}: ${value}`; }
function showMedian(one) {
  if (one.low === one.high) return showTime(one.median);
  return `${showTime(one.median)} (${showTime(one.low)} to ${showTime(one.high)})`;
}
