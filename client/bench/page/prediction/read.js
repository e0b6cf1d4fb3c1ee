// The prediction. Programs, functions and files may have any name.

const kMostRows = 5000, kMostAdvice = 20;
const kRunName = "this run", kGivenName = "links of --link";

function showBandwidth(bits) { return bits > 0 ? digits(bits / 1e9) + " Gb/s" : "no limit"; }
function linkName(link) { return `${showTime(link.rtt)}, ${showBandwidth(link.bandwidth)}`; }

// null when it lacks what every chart needs.
function readLink(json) {
  const one = object(json);
  const link = {
    rtt: number(one.rtt_ns), bandwidth: number(one.bits_per_second), given: one.given === true,
    time: number(one.nanoseconds), shortest: number(one.shortest), longest: number(one.longest),
    waits: number(one.waits_ns), bytes: number(one.bytes_ns),
  };
  return [link.rtt, link.bandwidth, link.time].includes(null) ? null : link;
}

// Calls that waited, of a function or a place.
function readWaits(json) {
  const one = object(json);
  return {
    name: text(one.name) || text(one.function), place: text(one.place),
    library: text(one.library), calls: number(one.waited), trips: number(one.round_trips),
    time: number(one.waited_ns) ?? 0, there: number(one.bytes_sent),
    back: number(one.bytes_received),
  };
}

class Prediction {
  constructor(json) {
    this.json = object(json);
    this.time = number(this.json.nanoseconds) ?? 0;
    this.links = list(this.json.links).slice(0, kMostRows).map(readLink)
      .filter(one => one !== null);
    this.grid = this.links.filter(link => !link.given);
    this.given = this.links.filter(link => link.given);
    this.at = readLink(this.json.at);
    this.functions = list(this.json.functions).slice(0, kMostRows).map(readWaits);
    this.places = list(this.json.places).slice(0, kMostRows).map(readWaits);
    this.bandwidths = unique(this.grid.map(link => showBandwidth(link.bandwidth)));
  }
  // A time, and what it is of this run's.
  shown(time) {
    const ratio = showRatio(time, this.time);
    return showTime(time) + (ratio === "" ? "" : ` (${ratio})`);
  }
  range(link) {
    if (link.shortest === null || link.longest === null) return "";
    return `${showTime(link.shortest)} to ${showTime(link.longest)}`;
  }
}

// What is compared: bandwidths; this run; links that were given. Set by showPage().
let bandwidths = [];
const kLooks = ["square", "diamond", "triangle", "wedge", "circle"];
const lookOf = way => kLooks[bandwidths.indexOf(way)] ?? "cross";
const isBare = way => way === kRunName;  // dashed
const wayName = way => way;
