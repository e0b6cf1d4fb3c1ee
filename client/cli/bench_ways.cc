#include "client/cli/bench_ways.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <regex>
#include <variant>

#include "common/transport/rdma/rdma.h"

extern "C" char** environ;

namespace fargpu::cli {

namespace {

using bench::Json;
using bench::Way;

constexpr auto kProbeLimit = std::chrono::seconds(60);  // a worker may have to start a cold driver
constexpr unsigned kPings = 21;
// As a session with FARGPU_TCP_CONNECTIONS=auto chooses.
constexpr auto kFar = std::chrono::milliseconds(1);
constexpr unsigned kFarConnections = 4;
const std::string kLargest = "LARGEST";

// Whether the server is on this host, as far as its name says.
bool named_here(const bootstrap::ServerAddress& address) {
  const auto* endpoint = std::get_if<Endpoint>(&address.where);
  if (endpoint == nullptr) return true;  // a unix socket
  return endpoint->host == "localhost" || endpoint->host == "::1" ||
         endpoint->host.starts_with("127.");
}

// Device, port and index of the GID of "rxe0 port 1, GID 1 ::ffff:10.0.0.1 (RoCE v2), ...".
std::optional<std::array<std::string, 3>> parse_route(const std::string& route) {
  static const std::regex kRoute(R"(^(\S+) port (\d+), GID (\d+) .*)");
  std::smatch found;
  if (!std::regex_match(route, found, kRoute)) return std::nullopt;
  return std::array<std::string, 3>{found[1], found[2], found[3]};
}

bool has_rdma_port() {
  const auto ports = transport::list_rdma_ports();
  return ports.ok() && !ports->empty();
}

Way remote_way(const std::string& transport, const std::string& program) {
  Way way{transport,
          Way::Kind::kRemote,
          {program, "calls", kLargest},
          {program, "starts"},
          own_environment()};
  way.environment["FARGPU_TRANSPORT"] = transport;
  return way;
}

Way native_way(const WayWishes& wishes, bench::Program::Environment here,
               const std::string& program) {
  std::erase_if(here, [](const auto& variable) { return variable.first.starts_with("FARGPU_"); });
  if (!wishes.native_library.empty()) {
    std::string& path = here["LD_LIBRARY_PATH"];
    path = wishes.native_library + (path.empty() ? "" : ":" + path);
  }
  return {"native",
          Way::Kind::kNative,
          {program, "calls", kLargest},
          {program, "starts"},
          std::move(here)};
}

struct Finder {
  const Target& target;
  const WayWishes& wishes;
  const std::string& program;
  bool here;
  Ways found{};

  void skip(const std::string& way, const std::string& why) {
    found.skips.push_back({"", way, why});
  }

  Status add(const std::string& transport) {
    if (transport == "rdma" && !has_rdma_port()) {
      skip(transport, "no RDMA device on this host");
      return Status(StatusCode::kNotFound, "rdma: no RDMA device on this host");
    }
    Target one = target;
    FARGPU_ASSIGN_OR_RETURN(one.link.transport, bootstrap::parse_wish(transport));
    const auto probe = probe_session(one, {}, kPings, transport::Clock::now() + kProbeLimit);
    if (!probe.ok()) {
      skip(transport, probe.status().message());
      return probe.status();
    }
    here = here || probe->same_host;
    found.ways.push_back(remote_way(transport, program));
    found.about[transport] = {{"kind", "fargpu"}, {"transport", probe->transport}};
    if (!probe->route.empty()) found.about[transport]["route"] = probe->route;
    add_bare(transport, *probe);
    return {};
  }

  unsigned connections(const SessionProbe& probe) const {
    if (target.link.connections.connections != 0)
      return static_cast<unsigned>(target.link.connections.connections);
    return probe.median_round_trip >= kFar ? kFarConnections : 1;
  }

  void add_bare(const std::string& transport, const SessionProbe& probe) {
    const std::string name = "bare-" + transport;
    if (std::getenv("FARGPU_LINK") != nullptr)
      return skip(name, "FARGPU_LINK emulates a link, which bare sockets do not use");
    std::vector<std::string> command{program};
    if (transport == "shm") {
      command.emplace_back("rings");
    } else if (transport == "rdma") {
      const auto port = parse_route(probe.route);
      const auto* endpoint = std::get_if<Endpoint>(&target.address.where);
      if (!here || !port || endpoint == nullptr)
        return skip(name,
                    "ib_write_lat and ib_write_bw are run only where both ends are on this host");
      command.emplace_back("perftest");
      command.insert(command.end(), port->begin(), port->end());
      command.push_back(endpoint->host);
    } else if (std::holds_alternative<std::string>(target.address.where)) {
      command.insert(command.end(), {"unix", "1"});
    } else if (!wishes.peer.empty() || here) {
      command.insert(command.end(), {"sockets", std::to_string(connections(probe))});
      if (!wishes.peer.empty()) command.push_back(wishes.peer);
    } else {
      return skip(name,
                  "it needs another end at the server: start `fargpu bench --be-peer` there, and "
                  "give --peer HOST:PORT here");
    }
    found.ways.push_back({name, Way::Kind::kBare, std::move(command), {}, own_environment()});
    // Its programs start anew for each figure, and take a second.
    if (transport == "rdma") found.ways.back().rounds = 1;
    found.about[name] = {{"kind", "bare"}};
  }
};

}  // namespace

bench::Program::Environment own_environment() {
  bench::Program::Environment all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const size_t at = text.find('=');
    if (at != std::string::npos) all[text.substr(0, at)] = text.substr(at + 1);
  }
  return all;
}

Result<Ways> find_ways(const Target& target, const WayWishes& wishes,
                       const bench::Program::Environment& here, const std::string& program) {
  Finder finder{target, wishes, program, named_here(target.address)};
  finder.found.about = Json::object();
  if (wishes.native) {
    finder.found.ways.push_back(native_way(wishes, here, program));
    finder.found.about["native"] = {{"kind", "native"}};
  }
  const bool one = !wishes.transport.empty() && wishes.transport != "auto";
  Status wrong;
  bool any = false;
  for (const std::string& transport :
       one ? std::vector{wishes.transport} : std::vector<std::string>{"shm", "rdma", "tcp"}) {
    const Status status = finder.add(transport);
    any = any || status.ok();
    if (!status.ok()) wrong = status;
  }
  if (!any) return wrong;
  return std::move(finder.found);
}

void set_largest(std::vector<Way>& ways, uint64_t bytes) {
  for (Way& way : ways)
    std::replace(way.calls.begin(), way.calls.end(), kLargest, std::to_string(bytes));
}

}  // namespace fargpu::cli
