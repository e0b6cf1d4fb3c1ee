// Values that were written by somebody, read with care: texts are only ever shown as texts, numbers
// are finite and not negative, and what is neither is left out. And how they are shown.

const kLongestText = 300;

const number = value => (typeof value === "number" && isFinite(value) && value >= 0 ? value : null);
const text = value => (typeof value === "string" ? value.slice(0, kLongestText) : "");
const list = value => (Array.isArray(value) ? value : []);
const object = value => (value && typeof value === "object" && !Array.isArray(value) ? value : {});

function unique(values) { return [...new Set(values)]; }

// At most 3 digits.
function digits(value) { return String(Number(value.toPrecision(3))); }
function inUnits(value, units) {
  const [size, unit] = units.find(([size]) => value >= size) ?? units[units.length - 1];
  return [value / size, unit];
}
function showTime(ns) {
  if (ns === null || ns === undefined) return "";
  if (ns < 1000) return ns.toFixed(0) + " ns";
  const [value, unit] = inUnits(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]);
  return digits(value) + " " + unit;
}
function showRate(bytesPerSecond) {
  if (bytesPerSecond === null || bytesPerSecond === undefined) return "";
  if (bytesPerSecond === 0) return "0";
  const [value, unit] = inUnits(bytesPerSecond, [[1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"]]);
  return digits(value) + " " + unit;
}
function showSize(bytes) {
  const [value, unit] =
    inUnits(bytes, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]);
  return digits(value) + " " + unit;
}
function showCount(value) { return value === null ? "" : String(value); }
function showRatio(of, to) { return of > 0 && to > 0 ? (of / to).toFixed(2) : ""; }
