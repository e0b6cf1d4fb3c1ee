// On the side where there is more room.
function nameBeside(x, y, name) {
  const right = x < (kLeft + kWidth) / 2;
  return label(right ? x + 9 : x - 9, y - 7, right ? "start" : "end", name, "name");
}

// Lines over a size or a number. `series`: [{way, points: [{x, y, low, high, words, name}]}]; low,
// high and the name, which stands beside the mark, may be missing. `x`, `y`: {title, show}; x.ticks:
// where they are not at each x; y.linear: from 0 to y.least at least, else logarithmic. `apart`: what has the same x stands side by side.
function curves(name, series, x, y, apart = false) {
  const points = series.flatMap(one => one.points), bottom = kHeight - kBottom;
  const xs = unique(points.map(point => point.x)).sort((a, b) => a - b);
  const room = xs.length > 1 ? 16 : (kWidth - kLeft - kRight) / 2;
  const placeX = logScale(xs[0], xs[xs.length - 1], kLeft + room, kWidth - kRight - room);
  const gap = xs.length === 1 ? 60 : apart ? 5 : 0;
  const ys = points.flatMap(point => [point.y, point.low ?? point.y, point.high ?? point.y]);
  const ticks = y.linear ? roundTicks(Math.max(...ys, y.least ?? 0)) : decadeTicks(decades(ys));
  const highest = ticks[ticks.length - 1];
  const placeY = y.linear ? linearScale(highest, bottom, kTop)
                          : logScale(ticks[0], highest, bottom, kTop);
  const drawn = series.map((one, index) => {
    const aside = (index - (series.length - 1) / 2) * gap;
    const at = point => [placeX(point.x) + aside, placeY(point.y)];
    const whisker = point => line("whisker", at(point)[0], placeY(point.low), at(point)[0],
                                  placeY(point.high));
    const path = "M" + one.points.map(point => at(point).join(" ")).join("L");
    return ofWay(one.way, svg("path", { class: "line", d: path }),
                 ...one.points.filter(point => point.low !== undefined).map(whisker),
                 ...one.points.filter(point => point.name !== undefined)
                   .map(point => nameBeside(...at(point), point.name)),
                 ...one.points.map(point => mark(one.way, ...at(point), point.words)));
  });
  return picture(name, kHeight, verticalAxis(ticks, placeY, y.show, y.title, bottom),
                 horizontalAxis(x.ticks ?? xs, placeX, x.show, x.title, kLeft, bottom), ...drawn);
}
