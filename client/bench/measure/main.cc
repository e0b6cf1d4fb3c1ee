// fargpu-measure: what `fargpu bench` starts to measure, once natively, once for each transport,
// and once for each bare link. It measures whatever libcuda.so.1 the loader finds.
//
//   fargpu-measure calls LARGEST             calls, launches and copies of at most LARGEST bytes
//   fargpu-measure starts                    sessions in fresh processes
//   fargpu-measure sockets CONNECTIONS [HOST:PORT]   bare TCP, to a peer, or to one of its own
//   fargpu-measure unix CONNECTIONS          bare unix sockets
//   fargpu-measure perftest DEVICE PORT GID HOST     ib_write_lat and ib_write_bw
//   fargpu-measure rings                     bare rings of shared memory
//   fargpu-measure peer HOST:PORT            the other end of bare TCP, until it is stopped
//
// It first prints a line, {"about": ...} or {"failed": why}, and then answers each line of its
// input (a Question) by a line: an Answer, or {"failed": why}. It ends with its input.
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "client/bench/measure/about_gpu.h"
#include "client/bench/measure/bare.h"
#include "client/bench/measure/cases.h"
#include "client/bench/measure/perftest.h"
#include "client/bench/measure/starts.h"
#include "common/base/log.h"
#include "common/transport/tcp/tcp.h"

namespace fargpu::bench {

namespace {

using Measure = std::function<Answer(const Question&)>;
constexpr auto kConnectLimit = std::chrono::seconds(10);

void say(const Json& line) {
  std::printf("%s\n", to_line(line).c_str());
  std::fflush(stdout);
}

void fail(const std::string& why) { say(Json{{"failed", why}}); }

void answer(const std::string& line, const Measure& measure) try {
  const auto json = parse_json(line, "the question");
  if (!json.ok()) return fail(json.status().message());
  const auto question = read_question(*json);
  if (!question.ok()) return fail(question.status().message());
  say(to_json(measure(*question)));
} catch (const std::exception& failure) {
  fail(failure.what());
}

int serve(const Json& about, const Measure& measure) {
  say(Json{{"about", about}});
  for (std::string line; std::getline(std::cin, line);) answer(line, measure);
  return 0;
}

int measure_calls(uint64_t largest) {
  if (const Status status = load_driver(); !status.ok()) throw Failed(status.message());
  Gpu gpu(largest);
  Cases cases;
  add_calls(cases);
  add_launches(cases);
  add_copies(cases);
  Json about{{"library", driver.path}, {"gpu", about_gpu()}};
  return serve(about, [&](const Question& question) -> Answer {
    const auto found = cases.find(question.name);
    if (found == cases.end()) throw Failed("there is no measurement '" + question.name + "'");
    if (question.bytes > gpu.largest()) return {{}, "larger than the largest copy"};
    return found->second(gpu, question);
  });
}

int measure_starts() {
  return serve(Json::object(), [](const Question& question) {
    return question.name == "start" ? measure_start() : measure_sessions(question);
  });
}

int measure_sockets(unsigned connections, const std::optional<std::string>& peer, bool unix) {
  Endpoint endpoint{"127.0.0.1", 0};
  std::optional<Peer> own;
  if (peer) {
    auto parsed = parse_endpoint(*peer);
    if (!parsed.ok()) throw Failed(parsed.status().message());
    endpoint = *parsed;
  } else {
    auto listening = Peer::listen(endpoint);
    if (!listening.ok()) throw Failed(listening.status().message());
    own.emplace(std::move(*listening));
    endpoint.port = own->port();
  }
  BareSockets sockets(
      [&] {
        if (unix) return own->connect_here();
        auto socket = transport::tcp_connect(endpoint, transport::Clock::now() + kConnectLimit);
        if (!socket.ok()) throw Failed(socket.status().message());
        return std::move(*socket);
      },
      connections);
  // A peer that is missing is known at once.
  (void)sockets.measure({"round_trip", "", 1, 1, 0});
  const Json about{{"connections", connections}, {"spins", bare_ends_spin()}};
  return serve(about, [&](const Question& question) { return sockets.measure(question); });
}

int be_peer(const std::string& where) {
  const auto endpoint = parse_endpoint(where, 0);
  if (!endpoint.ok()) throw Failed(endpoint.status().message());
  auto peer = Peer::listen(*endpoint);
  if (!peer.ok()) throw Failed(peer.status().message());
  say(Json{{"about", {{"port", peer->port()}}}});
  peer->serve();
}

uint64_t number(const std::string& text) {
  const auto value = parse_integer(text);
  if (!value.ok()) throw Failed(value.status().message());
  return *value;
}

int run(const std::vector<std::string>& words) {
  const std::string mode = words.empty() ? "" : words[0];
  if (mode == "calls" && words.size() == 2) return measure_calls(number(words[1]));
  if (mode == "starts" && words.size() == 1) return measure_starts();
  if (mode == "rings" && words.size() == 1)
    return serve(Json{{"spins", bare_ends_spin()}}, measure_rings);
  if (mode == "peer" && words.size() == 2) return be_peer(words[1]);
  if (mode == "perftest" && words.size() == 5) {
    look_for_perftest();
    const PerftestPort where{words[1], static_cast<unsigned>(number(words[2])),
                             static_cast<unsigned>(number(words[3])), words[4]};
    return serve(Json::object(),
                 [&](const Question& question) { return measure_perftest(where, question); });
  }
  if ((mode == "sockets" || mode == "unix") && (words.size() == 2 || words.size() == 3)) {
    return measure_sockets(static_cast<unsigned>(number(words[1])),
                           words.size() == 3 ? std::optional(words[2]) : std::nullopt,
                           mode == "unix");
  }
  std::fprintf(stderr, "fargpu-measure: `fargpu bench` starts it; see `fargpu bench --help`\n");
  return 2;
}

int main(int argc, char** argv) try {
  log::configure("fargpu-measure", log::Level::kWarn);
  return run({argv + 1, argv + argc});
} catch (const std::exception& failure) {
  fail(failure.what());
  return 1;
}

}  // namespace

}  // namespace fargpu::bench

int main(int argc, char** argv) { return fargpu::bench::main(argc, argv); }
