// Which calls of a driver wait while something holds a stream. The answers decide where a worker
// may make a call (docs/architecture.md, "Calls that wait in the driver").
//
// A stream is held by a host function, by a wait for a value in memory or by a kernel, which the
// program releases without the driver. Meanwhile a thread makes one call; one that is not back
// within 100 ms waits. Then other threads make a dozen other calls, which shows what waits with it.
//
// Each section runs in a child process. A call that never returns costs that process; another one
// goes on with the next case. A line is the section, what holds the stream, where the call is made,
// the call, and what it does:
//   driver_waits --only streams --held-by function
//   streams function follower cuMemcpyDtoHAsync pageable 4 B -> waits, 0.1 ms after the release
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bench/driver_waits/cases.h"

namespace driver_waits {
namespace {

constexpr int kLongestCase = 25000;  // ms

struct Section {
  const char* name;
  const char* about;
  std::vector<Case> (*cases)();
};
constexpr Section kSections[] = {
    {"calls", "calls that name no stream", plain_cases},
    {"streams", "calls in the held stream, in one that waits for it, and elsewhere", stream_cases},
    {"queues", "how many operations a queue takes", queue_cases},
    {"graphs", "launches, changes and ends of graphs in flight", graph_cases},
};

struct Options {
  std::vector<std::string> only;
  std::string held_by, text;
  bool list = false;
};

bool is_wanted(const Options& options, const Case& one) {
  return (options.held_by.empty() || options.held_by == one.held_by) &&
         one.name.find(options.text) != std::string::npos;
}

std::string title(const Section& section, const Case& one) {
  char line[200];
  std::snprintf(line, sizeof line, "%-7s %-8s %-8s %s", section.name, one.held_by.c_str(),
                one.where.c_str(), one.name.c_str());
  return line;
}

// In a child process: writes a byte for each case that it begins.
[[noreturn]] void ask_all(const Section& section, const std::vector<Case>& cases, size_t first,
                          const int (&pipe_ends)[2]) {
  ::close(pipe_ends[0]);
  World world;
  Asker asker(world);
  for (size_t i = first; i < cases.size(); ++i) {
    if (::write(pipe_ends[1], "", 1) != 1) ::_exit(1);
    std::printf("%s -> ", title(section, cases[i]).c_str());
    std::fflush(stdout);
    std::printf("%s\n", cases[i].answer(asker).c_str());
    std::fflush(stdout);
  }
  ::_exit(0);
}

// Asks `cases` from `first` on, until one ends the process. Returns the next one; `first`: none
// could be asked.
size_t ask_in_child(const Section& section, const std::vector<Case>& cases, size_t first,
                    bool* all_answered) {
  int ends[2];
  if (::pipe(ends) != 0) return first;
  const pid_t child = ::fork();
  if (child == 0) ask_all(section, cases, first, ends);
  ::close(ends[1]);
  size_t next = first;
  pollfd waiting{ends[0], POLLIN, 0};
  char byte;
  while (::poll(&waiting, 1, kLongestCase) > 0 && ::read(ends[0], &byte, 1) == 1) ++next;
  ::close(ends[0]);
  if ((waiting.revents & POLLHUP) == 0) ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    const bool killed = WTERMSIG(status) == SIGKILL;
    std::printf("%s\n", killed ? "does not end" : ::strsignal(WTERMSIG(status)));
  }
  *all_answered = *all_answered && status == 0;
  return next;
}

std::vector<Case> wanted_cases(const Options& options, const Section& section) {
  std::vector<Case> cases;
  const std::vector<std::string>& only = options.only;
  if (!only.empty() && std::find(only.begin(), only.end(), section.name) == only.end())
    return cases;
  for (Case& one : section.cases()) {
    if (is_wanted(options, one)) cases.push_back(std::move(one));
  }
  return cases;
}

int run(const Options& options) {
  bool all_answered = true;
  for (const Section& section : kSections) {
    const std::vector<Case> cases = wanted_cases(options, section);
    if (options.list) {
      for (const Case& one : cases) std::printf("%s\n", title(section, one).c_str());
      continue;
    }
    for (size_t next = 0; next < cases.size();) {
      std::fflush(stdout);  // a child would write it once more
      const size_t first = std::exchange(next, ask_in_child(section, cases, next, &all_answered));
      if (next == first) return 2;
    }
  }
  return all_answered ? 0 : 1;
}

}  // namespace
}  // namespace driver_waits

int main(int argc, char** argv) {
  using namespace driver_waits;
  CLI::App app(
      "Which calls of a driver wait while something holds a stream, with the libcuda.so.1 "
      "that the loader finds",
      "driver_waits");
  Options options;
  std::string footer = "Sections:\n";
  std::vector<std::string> names;
  for (const Section& section : kSections) {
    names.emplace_back(section.name);
    footer += std::string("  ") + section.name + ": " + section.about + "\n";
  }
  footer +=
      "Exit codes: 0 all cases were answered; 1 some ended their process, or did not end; 2 "
      "wrong usage, or no CUDA.";
  app.footer(footer);
  app.add_option("--only", options.only, "ask this section, and others that are named so")
      ->check(CLI::IsMember(names));
  app.add_option("--held-by", options.held_by, "ask only where this holds the stream")
      ->check(CLI::IsMember({"function", "value", "kernel", "node"}));
  app.add_option("--case", options.text, "ask only cases whose name has this text");
  app.add_flag("--list", options.list, "print the cases, and ask nothing");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return run(options);
}
