#include "client/call/report_json.h"

#include <fmt/format.h>

#include <iterator>

#include "client/call/json_text.h"
#include "client/call/report_text.h"

namespace fargpu::client::report {
namespace {

// A name of a process may be anything.
std::string quoted(const std::string& text) {
  std::string out;
  append_json_text(out, text);
  return out;
}

std::string functions(const PerFunction& all) {
  std::string out;
  for (size_t i = 0; i < all.size(); ++i) {
    const OfFunction& of = all[i];
    if (of.local.get() + of.sent.get() + of.waited.get() == 0) continue;
    fmt::format_to(std::back_inserter(out),
                   R"({}{{"name":"{}","local":{},"sent":{},"waited":{},"waited_ns":{},)"
                   R"("inside_ns":{},"round_trips":{},"bytes_sent":{},"bytes_received":{},)"
                   R"("not_supported":{}}})",
                   out.empty() ? "" : ",", name_of(i), of.local.get(), of.sent.get(),
                   of.waited.get(), of.nanoseconds.get(), of.inside.get(), of.round_trips.get(),
                   of.bytes_sent.get(), of.bytes_received.get(), of.not_supported.get());
  }
  return out;
}

std::string copies(const Counts& counts) {
  std::string out;
  for (size_t direction = 0; direction < counts.copies.size(); ++direction) {
    for (size_t i = 0; i < kRoutes; ++i) {
      const OfRoute& of = counts.copies[direction][i];
      if (of.copies.get() == 0) continue;
      fmt::format_to(std::back_inserter(out),
                     R"({}{{"to_device":{},"route":"{}","copies":{},"bytes":{}}})",
                     out.empty() ? "" : ",", direction == 1, name_of_route(i), of.copies.get(),
                     of.bytes.get());
    }
  }
  return out;
}

std::string rates(const rpc::LinkTimes& link) {
  std::string out;
  for (size_t i = 0; i < rpc::kLinkRates.size(); ++i) {
    fmt::format_to(std::back_inserter(out),
                   R"({}{{"bits_per_second":{:.0f},"in_order_ns":{:.0f},"overlapped_ns":{:.0f}}})",
                   out.empty() ? "" : ",", rpc::kLinkRates[i], link.in_order[i],
                   link.overlapped[i]);
  }
  return out;
}

std::string call_sites_of(const call_sites::Found* found) {
  if (found == nullptr) return {};
  std::string out;
  for (const CallSite& of : found->sites) {
    fmt::format_to(std::back_inserter(out),
                   R"({}{{"function":"{}","place":{},"library":{},"waited":{},"waited_ns":{},)"
                   R"("round_trips":{},"bytes_sent":{},"bytes_received":{}}})",
                   out.empty() ? "" : ",", name_of(of.function), quoted(of.site),
                   quoted(of.library), of.counts.waited, of.counts.nanoseconds,
                   of.counts.round_trips, of.counts.bytes_sent, of.counts.bytes_received);
  }
  return fmt::format(R"("looking_ns":{},"places":[{}],)", found->looking_ns, out);
}

}  // namespace

std::string json(const Counts& counts, const rpc::LinkTimes& link, const AboutProcess& process,
                 const call_sites::Found* sites) {
  const std::string of_functions = functions(counts.functions);
  if (of_functions.empty()) return {};
  return fmt::format(
      R"({{"fargpu_report":1,"process":{},"id":{},"begin_ns":{},"nanoseconds":{},)"
      R"("functions":[{}],"copies":[{}],"images":{{"sent":{},"bytes":{},"bytes_sent":{},)"
      R"("found":{}}},{}"link":{{"round_trips":{},"in_a_row":{},"most_of_a_thread":{},)"
      R"("rates":[{}]}}}})"
      "\n",
      quoted(process.name), process.id, process.begin_ns, process.nanoseconds, of_functions,
      copies(counts), counts.images_sent.get(), counts.image_bytes.get(),
      counts.image_bytes_sent.get(), counts.images_found.get(), call_sites_of(sites),
      link.round_trips, link.in_a_row, link.most_of_a_thread, rates(link));
}

}  // namespace fargpu::client::report
