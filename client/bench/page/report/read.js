// The results: a file may come from anybody.

const kMostResults = 10000, kMostBuckets = 5000;
const kPercentiles = ["p50", "p90", "p99", "p99.9", "max"];
const kWays = ["native", "shm", "rdma", "tcp"];

const isBare = way => way.startsWith("bare-");
const transportOf = way => (isBare(way) ? way.slice("bare-".length) : way);
const wayName = way => (isBare(way) ? "bare " + transportOf(way) : way);

// What it looks like (chart.js).
const kLooks = { native: "circle", shm: "square", rdma: "diamond", tcp: "triangle" };
const lookOf = way => (Object.hasOwn(kLooks, transportOf(way)) ? kLooks[transportOf(way)] : "wedge");

// Native first, the bare links last.
function wayOrder(way) {
  const place = kWays.indexOf(transportOf(way));
  return (isBare(way) ? 10 : 0) + (place < 0 ? kWays.length : place);
}

// One result; null when it lacks what every chart needs.
function readResult(json) {
  const one = object(json);
  const result = {
    name: text(one.case), way: text(one.way), record: text(one.record), memory: text(one.memory),
    bare: text(one.bare), bytes: number(one.bytes), count: number(one.count),
    samples: number(one.samples), rounds: number(one.rounds), median: number(one.median),
    min: number(one.min), rate: number(one.bytes_per_second),
    jain: number(object(one.fairness).jain), unequal: number(object(one.fairness).most_to_least),
  };
  for (const name of kPercentiles) result[name] = number(one[name]);
  const [low, high] = list(one.median_interval).map(number);
  result.low = low ?? result.median;
  result.high = high ?? result.median;
  result.histogram = list(one.histogram).slice(0, kMostBuckets)
    .filter(bucket => list(bucket).length === 2 && bucket.every(each => number(each) !== null));
  return result.name && result.way && result.median !== null ? result : null;
}

// All results of a file, and the file itself.
class Results {
  constructor(json) {
    this.json = object(json);
    const all = list(this.json.results);
    this.all = all.slice(0, kMostResults).map(readResult).filter(one => one !== null);
    this.leftOut = all.length - this.all.length;
    this.byName = new Map(this.all.map(one => [this.key(one.name, one.way), one]));
  }
  key(name, way) { return name + "\n" + way; }
  find(name, way) { return this.byName.get(this.key(name, way)); }
  nativeOf(one) { return this.find(one.name, "native"); }
  bareOf(one) { return one.bare ? this.find(one.bare, "bare-" + one.way) : undefined; }
  gpu() { return text(object(this.json.gpu).name); }
}

function waysOf(results) {
  return unique(results.map(one => one.way)).sort((a, b) => wayOrder(a) - wayOrder(b));
}
