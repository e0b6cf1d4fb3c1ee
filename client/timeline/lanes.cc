#include "client/timeline/lanes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iterator>

#include "client/call/trace.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client::timeline {
namespace {

constexpr unsigned kFramesThread = 1, kPostedThread = 2;

double micros(uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1000.0; }

std::string name_of(uint16_t opcode) {
  if (opcode >= schema::kFirstOpcode && opcode < schema::kOpcodeEnd)
    return schema::opcode_name(opcode);
  return fmt::format("control {}", opcode);
}

const char* title(Lane lane) {
  return lane == Lane::kRequest ? "request" : lane == Lane::kWaits ? "waits" : "answer";
}

// Of the executor's thread.
void add_work(fmt::memory_buffer& out, uint64_t process, const Slice& slice) {
  const bool posted = slice.lane == Lane::kPosted;
  fmt::format_to(std::back_inserter(out),
                 R"({{"name":"{}","cat":"worker","ph":"X","pid":{},"tid":{},"ts":{:.3f},)"
                 R"("dur":{:.3f},"args":{{"opcode":{},"sequence":{}}}}},)"
                 "\n",
                 posted ? "posted work" : name_of(slice.opcode), process,
                 posted ? kPostedThread : kFramesThread, micros(slice.begin),
                 micros(slice.end - slice.begin), slice.opcode, slice.sequence);
}

// Many at once: those of one frame share a row.
void add_wire(fmt::memory_buffer& out, uint64_t process, const Slice& slice) {
  const auto event = [&](char phase, uint64_t time, const std::string& arguments) {
    fmt::format_to(std::back_inserter(out),
                   R"({{"name":"{}","cat":"wire","ph":"{}","id2":{{"local":"{:#x}"}},"pid":{},)"
                   R"("tid":{},"ts":{:.3f}{}}},)"
                   "\n",
                   title(slice.lane), phase, slice.sequence, process, kFramesThread, micros(time),
                   arguments);
  };
  event('b', slice.begin,
        fmt::format(R"(,"args":{{"call":"{}","sequence":{}}})", name_of(slice.opcode),
                    slice.sequence));
  event('e', slice.end, "");
}

}  // namespace

// Numbers of Linux' processes have at most 22 bits.
uint64_t process_of(unsigned session) {
  return (uint64_t{session} + 1) << 22 | static_cast<uint64_t>(::getpid());
}

std::string name_lanes(uint64_t process, const std::string& server) {
  constexpr auto* kName = R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}},)"
                          "\n";
  return fmt::format(kName, "process_name", process, 0,
                     trace::quoted(fmt::format("worker of {} for {}", server, ::getpid()))) +
         fmt::format(kName, "thread_name", process, kFramesThread, "\"frames\"") +
         fmt::format(kName, "thread_name", process, kPostedThread, "\"posted work\"");
}

std::string describe(uint64_t process, std::span<const Slice> slices) {
  fmt::memory_buffer out;
  for (const Slice& slice : slices) {
    if (slice.lane == Lane::kFrames || slice.lane == Lane::kPosted) {
      add_work(out, process, slice);
    } else if (slice.begin <= slice.end) {
      add_wire(out, process, slice);
    }
  }
  return fmt::to_string(out);
}

std::string note(uint64_t process, const std::string& text, const std::string& arguments) {
  return fmt::format(R"({{"name":{},"cat":"timeline","ph":"i","s":"p","pid":{},"tid":{},)"
                     R"("ts":{:.3f},"args":{{{}}}}},)"
                     "\n",
                     trace::quoted(text), process, kFramesThread, micros(Frames::now()), arguments);
}

}  // namespace fargpu::client::timeline
