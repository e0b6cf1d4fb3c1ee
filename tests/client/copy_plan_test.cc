// The rule of one copy as tables, in the words of docs/adr/0068. In each table the first line whose
// condition holds says what is planned. Every combination of facts, observers and means is looked
// at, so the tables say all that plan() does, and each of their lines is needed.
#include "client/copy/copy_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fargpu::client {
namespace {

using copy::Hold;
using copy::Order;
using End = copy::Completion::Kind;
using Return = CopyReturn;

struct Case {
  CopyFacts copy;
  Observers::Set observers = 0;
  CopyMeans means;
  CopyRoute route{};  // as planned

  bool sees(Observers::Set any_of) const { return (observers & any_of) != 0; }
};

using Predicate = bool (*)(const Case&);
bool is_pinned(const Case& c) { return c.copy.host == HostMemory::kPinned; }
bool is_pageable(const Case& c) { return c.copy.host == HostMemory::kPageable; }
bool is_written(const Case& c) {
  if (is_pageable(c)) return c.sees(Observers::kHostFunctions | Observers::kValueWaits);
  return c.sees(Observers::kHostFunctions | Observers::kValueWaits | Observers::kSharedMemory |
                Observers::kMirrors) ||
         c.copy.overwritten || (c.copy.registered && c.sees(Observers::kOtherProcesses));
}
// By host functions, and by a host that mapped memory lets speak with kernels, alone.
bool is_written_within_sight(const Case& c) {
  return is_written(c) && !c.copy.overwritten &&
         !c.sees(Observers::kValueWaits | Observers::kSharedMemory) &&
         !(c.sees(Observers::kMirrors) && c.copy.reachable) &&
         !(c.copy.registered && c.sees(Observers::kOtherProcesses));
}
bool is_amended(const Case& c) {
  return is_pinned(c) && c.copy.to_device && !c.copy.waits && !c.copy.takes_now && c.means.gates &&
         c.means.amends && is_written_within_sight(c) &&
         c.copy.bytes <= (c.sees(Observers::kMirrors) ? 4u << 10 : 64u << 10);
}
bool is_told(const Case& c) {
  return c.sees(Observers::kHeldStreams | Observers::kCopies | Observers::kValueWaits |
                Observers::kSharedMemory | Observers::kMirrors | Observers::kOtherProcesses);
}

// The words of a condition. All words of a line must hold; "!" in front of one: must not.
const std::map<std::string, Predicate> kWords = {
    // Direction and call. "now": the call takes the source's bytes. "own": fargpu's own copy.
    {"to", [](const Case& c) { return c.copy.to_device; }},
    {"from", [](const Case& c) { return !c.copy.to_device; }},
    {"sync", [](const Case& c) { return c.copy.waits; }},
    {"async", [](const Case& c) { return !c.copy.waits; }},
    {"now", [](const Case& c) { return c.copy.takes_now; }},
    {"own", [](const Case& c) { return c.copy.own_work; }},
    {"legacy", [](const Case& c) { return c.copy.legacy; }},
    // All in the stream is known to be done.
    {"first", [](const Case& c) { return c.copy.is_first; }},
    // Host memory. "known": all or the first of it is pinned or registered.
    {"pinned", is_pinned},
    {"known", [](const Case& c) { return c.copy.host != HostMemory::kPageable; }},
    {"pageable", is_pageable},
    {"shared", [](const Case& c) { return is_pinned(c) && c.copy.shared; }},
    {"mirrored", [](const Case& c) { return is_pinned(c) && c.copy.mirrored; }},
    {"reachable", [](const Case& c) { return c.copy.reachable; }},
    // Size: more than 64 KiB; 1 MiB and more.
    {"large", [](const Case& c) { return c.copy.bytes > (64u << 10); }},
    {"bulk", [](const Case& c) { return c.copy.bytes >= (1u << 20); }},
    // Observers. "written": the source may change before the stream reaches the copy. "told":
    // somebody may learn that the call has returned, or how far a stream is.
    {"written", is_written},
    {"amended", [](const Case& c) { return is_amended(c) && c.route == CopyRoute::kFrames; }},
    {"told", is_told},
    {"processes", [](const Case& c) { return c.sees(Observers::kOtherProcesses); }},
    {"gateable", [](const Case& c) { return c.sees(Observers::kGateableMemory); }},
    {"gated", [](const Case& c) { return c.sees(Observers::kGatedMemory); }},
    // Means.
    {"gates", [](const Case& c) { return c.means.gates; }},
    {"channel", [](const Case& c) { return c.means.bulk_channel; }},
    {"adapter", [](const Case& c) { return c.means.adapter; }},
    // Its source is written within the client's sight alone, and what was sent may be amended.
    {"amends", is_amended},
    {"ring", [](const Case& c) { return c.means.staging; }},
    {"one-host", [](const Case& c) { return c.means.shared_segments; }},
    // The route that was planned.
    {"mirror", [](const Case& c) { return c.route == CopyRoute::kMirror; }},
    {"share", [](const Case& c) { return c.route == CopyRoute::kShared; }},
    {"fetch", [](const Case& c) { return c.route == CopyRoute::kFetch; }},
    {"deliver", [](const Case& c) { return c.route == CopyRoute::kDeliver; }},
    {"remote", [](const Case& c) { return c.route == CopyRoute::kRemote; }},
    {"staged", [](const Case& c) { return c.route == CopyRoute::kStaged; }},
    {"frames", [](const Case& c) { return c.route == CopyRoute::kFrames; }},
};

class Condition {
 public:
  explicit Condition(const char* text) {
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      const bool is_not = word[0] == '!';
      terms_.push_back({kWords.at(is_not ? word.substr(1) : word), !is_not});
    }
  }
  bool holds(const Case& one) const {
    for (const auto& [predicate, wanted] : terms_)
      if (predicate(one) != wanted) return false;
    return true;
  }

 private:
  std::vector<std::pair<Predicate, bool>> terms_;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  for (const auto& [word, predicate] : kWords) out << (predicate(c) ? " " : " !") << word;
  return out << " observers " << std::hex << c.observers << std::dec << " bytes " << c.copy.bytes;
}

// Calls visit(case) for every combination that can be.
template <typename Visit>
void for_each_case(Visit&& visit) {
  constexpr uint64_t kSizes[] = {4u << 10, 64u << 10, (64u << 10) + 1, 1u << 20};
  struct Call {
    bool to_device, waits, own_work, takes_now, is_first = false, legacy = false;
  };
  constexpr Call kCalls[] = {
      {false, false, false, false},      {false, true, false, false},
      {true, false, false, false},       {true, true, false, false},
      {true, false, false, true},        {true, true, true, false},
      {true, false, false, false, true}, {true, true, false, false, false, true}};
  struct Memory {
    HostMemory host;
    bool shared, mirrored, reachable, registered = false;
  };
  constexpr Memory kMemories[] = {{HostMemory::kPageable, false, false, false},
                                  {HostMemory::kCutOff, false, false, false},
                                  {HostMemory::kCutOff, false, true, true},
                                  {HostMemory::kPinned, false, false, false},
                                  {HostMemory::kPinned, true, false, false},
                                  {HostMemory::kPinned, false, true, true},
                                  {HostMemory::kPinned, false, false, true},
                                  {HostMemory::kPinned, false, false, false, true}};
  constexpr Observers::Set kObservers[] = {
      Observers::kHostFunctions | Observers::kHeldStreams,
      Observers::kHeldStreams,
      Observers::kCopies,
      Observers::kSharedMemory,
      Observers::kMirrors,
      Observers::kGateableMemory,
      Observers::kGateableMemory | Observers::kGatedMemory,
      1 << 8,
      Observers::kValueWaits & ~Observers::Set{1 << 8},  // coming
      1 << 9};
  // tcp, with or without a bulk channel; shm; rdma, with memory that the adapter reaches or not.
  constexpr CopyMeans kMeans[] = {{},
                                  {.bulk_channel = true},
                                  {.bulk_channel = true, .amends = true},
                                  {.shared_segments = true},
                                  {.shared_segments = true, .staging = true},
                                  {.adapter = true, .staging = true},
                                  {.staging = true},
                                  {.adapter = true}};
  for (const uint64_t bytes : kSizes) {
    for (const Call& call : kCalls) {
      for (const Memory& memory : kMemories) {
        if (call.own_work && memory.host != HostMemory::kPageable) continue;
        for (unsigned seen = 0; seen < 1u << std::size(kObservers); ++seen) {
          Case one{{.to_device = call.to_device,
                    .waits = call.waits,
                    .legacy = call.legacy,
                    .own_work = call.own_work,
                    .takes_now = call.takes_now,
                    .is_first = call.is_first,
                    .bytes = bytes,
                    .host = memory.host,
                    .shared = memory.shared,
                    .mirrored = memory.mirrored,
                    .reachable = memory.reachable,
                    .registered = memory.registered},
                   0,
                   {},
                   {}};
          for (size_t i = 0; i < std::size(kObservers); ++i)
            if ((seen >> i & 1) != 0) one.observers |= kObservers[i];
          const bool may_be_overwritten = call.to_device && memory.host != HostMemory::kPageable &&
                                          one.sees(Observers::kCopies);
          for (const bool overwritten : {false, true}) {
            if (overwritten && !may_be_overwritten) continue;
            one.copy.overwritten = overwritten;
            for (CopyMeans means : kMeans) {
              for (const bool gates : {false, true}) {
                means.gates = gates;
                one.means = means;
                visit(one);
              }
            }
          }
        }
      }
    }
  }
}

// `Line` has a condition and whatever check(line, case, plan) compares.
template <typename Line, typename Applies, typename Check>
void expect_table(const std::vector<Line>& lines, Applies&& applies, Check&& check) {
  std::vector<Condition> conditions;
  for (const Line& line : lines) conditions.emplace_back(line.condition);
  std::set<size_t> used;
  for_each_case([&](Case one) {
    const CopyPlan planned = plan(one.copy, one.observers, one.means);
    one.route = planned.route;
    if (testing::Test::HasFailure() || !applies(one)) return;
    size_t at = 0;
    while (at < lines.size() && !conditions[at].holds(one)) ++at;
    ASSERT_LT(at, lines.size()) << "no line for" << one;
    used.insert(at);
    EXPECT_TRUE(check(lines[at], planned)) << "line \"" << lines[at].condition << "\":" << one;
  });
  EXPECT_EQ(used.size(), lines.size()) << "a line is never used";
}

TEST(CopyPlan, Route) {
  struct Line {
    const char* condition;
    CopyRoute route;
  };
  expect_table<Line>(
      {
          {"mirrored !now", CopyRoute::kMirror},
          {"shared !now", CopyRoute::kShared},
          {"pinned from async gates", CopyRoute::kDeliver},
          {"amends", CopyRoute::kFrames},
          {"pinned to async !now gates written", CopyRoute::kFetch},
          {"pinned to async !now gates bulk channel", CopyRoute::kFetch},
          {"pinned !now large adapter", CopyRoute::kRemote},
          {"large ring", CopyRoute::kStaged},
          {"", CopyRoute::kFrames},
      },
      [](const Case&) { return true; },
      [](const Line& line, const CopyPlan& planned) { return planned.route == line.route; });
}

TEST(CopyPlan, OrderAndReturn) {
  struct Line {
    const char* condition;
    Order order;
    Return returns;
  };
  expect_table<Line>(
      {
          {"async to first pageable !large !told", Order::kReturned, Return::kSent},
          {"async to", Order::kStream, Return::kSent},
          {"async from mirror", Order::kStream, Return::kSent},
          {"async from share", Order::kStream, Return::kSent},
          {"async from deliver", Order::kStream, Return::kSent},
          {"from", Order::kStream, Return::kPassed},
          // Synchronous, to the device.
          {"mirror", Order::kStream, Return::kPassed},
          {"share", Order::kStream, Return::kPassed},
          {"remote", Order::kStream, Return::kPassed},
          // The call takes the bytes.
          {"own", Order::kOwnStream, Return::kSent},
          {"pageable !large !processes", Order::kLaterWork, Return::kSent},
          {"!told", Order::kReturned, Return::kUnobserved},
          {"pageable !processes", Order::kLaterWork, Return::kEarlierEnded},
          {"", Order::kStream, Return::kPassed},
      },
      [](const Case&) { return true; },
      [](const Line& line, const CopyPlan& planned) {
        return planned.order == line.order && planned.returns == line.returns;
      });
}

TEST(CopyPlan, Hold) {
  struct Line {
    const char* condition;
    Hold hold;
  };
  expect_table<Line>(
      {
          {"fetch written", Hold::kForStaging},
          {"fetch", Hold::kSourceStands},
          {"deliver one-host", Hold::kUntilDelivered},
          {"deliver reachable", Hold::kUntilDelivered},
          {"deliver gated", Hold::kUntilDelivered},
          {"staged to async !now pinned gates", Hold::kForStaging},
          {"", Hold::kNever},
      },
      [](const Case&) { return true; },
      [](const Line& line, const CopyPlan& planned) { return planned.hold == line.hold; });
}

TEST(CopyPlan, Completion) {
  struct Line {
    const char* condition;
    End completion;
  };
  expect_table<Line>(
      {
          {"fetch", End::kFollow},
          {"deliver", End::kFollow},
          {"staged one-host", End::kWord},
          {"staged", End::kNotice},
          {"share sync", End::kReply},
          {"remote from", End::kReply},
          {"frames from", End::kReply},
          {"amended", End::kAmended},
          {"", End::kNothing},
      },
      [](const Case&) { return true; },
      [](const Line& line, const CopyPlan& planned) {
        return planned.completion == line.completion;
      });
}

TEST(CopyPlan, WhatHappensToTheHostEndBefore) {
  struct Line {
    const char* condition;
    bool awaits_source, opens;
  };
  expect_table<Line>(
      {
          {"mirror sync to !large written", true, false},
          {"mirror", false, false},
          {"gateable share sync to !legacy !large written", true, true},
          {"share sync to !legacy !large written", true, false},
          {"gateable pageable large sync to !own written", true, true},
          {"gateable known to !now written remote", true, true},
          {"gateable known to !now written staged", true, true},
          {"gateable amended", false, true},
          {"gateable known to !now written frames", true, true},
          {"gateable", false, true},
          {"pageable large sync to !own written", true, false},
          {"amended", false, false},
          {"known to !now written remote", true, false},
          {"known to !now written staged", true, false},
          {"known to !now written frames", true, false},
          {"", false, false},
      },
      [](const Case&) { return true; },
      [](const Line& line, const CopyPlan& planned) {
        return planned.awaits_source == line.awaits_source && planned.opens == line.opens;
      });
}

// A plan is made again when the call has waited for its source, or has found no adapter or ring.
TEST(CopyPlan, StaysOnItsRouteWhenFewerObserve) {
  for_each_case([&](const Case& one) {
    const CopyPlan planned = plan(one.copy, one.observers, one.means);
    if (!planned.awaits_source || testing::Test::HasFailure()) return;
    CopyFacts later = one.copy;
    later.overwritten = false;
    const CopyPlan quiet = plan(later, 0, one.means);
    EXPECT_EQ(quiet.route, planned.route) << one;
    EXPECT_FALSE(quiet.awaits_source) << one;
  });
}

TEST(CopyPlan, ADeliveryHoldsItsStreamWhenMuchIsUnderWay) {
  CopyPlan planned{.route = CopyRoute::kDeliver};
  EXPECT_EQ(delivery_hold(planned, copy::kMostUnheld), Hold::kNever);
  EXPECT_EQ(delivery_hold(planned, copy::kMostUnheld + 1), Hold::kForStaging);
  planned.hold = Hold::kUntilDelivered;
  EXPECT_EQ(delivery_hold(planned, copy::kMostUnheld + 1), Hold::kUntilDelivered);
}

}  // namespace
}  // namespace fargpu::client
