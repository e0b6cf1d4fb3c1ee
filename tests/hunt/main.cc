// Runs random programs and checks what they read; see program.h and order.h.
//
// Exit codes: 0 all were right; 1 a wrong value or an unexpected error; 2 wrong usage, or no CUDA;
// 3 a program did not end. What failed is named by its seed, with which --replay runs it again.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>

#include "tests/hunt/run.h"

namespace {

using namespace fargpu::hunt;

volatile uint64_t seed_under_way = 0;

void on_hang(int) {
  char line[80];
  const int length = std::snprintf(line, sizeof line, "HANG seed %llu\n",
                                   static_cast<unsigned long long>(seed_under_way));
  (void)!write(STDOUT_FILENO, line, static_cast<size_t>(length));
  show_positions();
  _exit(3);
}

// The process that runs the other half of programs of two; it is started when there is one.
std::optional<Meeting> meeting;

// False: the program failed, and that was said.
bool try_one(const Device& device, const Program& program, const std::vector<size_t>& without,
             Mistake mistake, unsigned limit) {
  seed_under_way = program.seed;
  const Allowed allowed = allowed_values(program);
  if (!allowed.legal) {
    std::printf("seed %llu as it is left breaks the rules of managed memory\n",
                static_cast<unsigned long long>(program.seed));
    return true;
  }
  alarm(limit);
  if (program.processes == 2) {
    if (!meeting || meeting->has_ended()) {
      meeting.reset();
      meeting.emplace(Meeting::start());
    }
    meeting->begin(program.seed, static_cast<uint32_t>(mistake), without);
  }
  const std::string failure =
      run(device, program, allowed, mistake, meeting ? &*meeting : nullptr, 0);
  alarm(0);
  if (failure.empty()) return true;
  std::printf("WRONG seed %llu: %s\n", static_cast<unsigned long long>(program.seed),
              failure.c_str());
  return false;
}

Program make(uint64_t seed, const std::vector<size_t>& without) {
  Program program = generate(seed);
  for (const size_t number : without) leave_out(program, number);
  return program;
}

// The second process. Program after program, until the first one ends or one is to be left early.
int run_second(const std::vector<int>& descriptors) {
  Meeting first(descriptors.at(0), descriptors.at(1));
  uint64_t seed = 0;
  uint32_t mistake = 0;
  std::vector<size_t> without;
  std::optional<Device> device;
  while (first.next(seed, mistake, without)) {
    if (!device) device = open_device();
    const Program program = make(seed, without);
    const std::string failure =
        run(*device, program, allowed_values(program), static_cast<Mistake>(mistake), &first, 1);
    if (!failure.empty() || program.leaves) std::_Exit(failure.empty() ? 0 : 1);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Random CUDA programs with a checker of what every read may return"};
  uint64_t seed = std::random_device()(), replay = 0;
  double seconds = 10;
  unsigned limit = 30, repeat = 20;
  std::vector<size_t> without;
  bool print = false;
  Mistake mistake = Mistake::kNone;
  app.add_option("--seed", seed, "the first program's; the next ones follow (default: by chance)");
  app.add_option("--seconds", seconds, "how long to go on")->capture_default_str();
  app.add_option("--limit", limit, "a program that takes longer, in seconds, hangs")
      ->capture_default_str();
  auto* replay_option = app.add_option("--replay", replay, "run this one program again and again");
  app.add_option("--repeat", repeat, "how often, with --replay")->capture_default_str();
  app.add_option("--without", without, "operations to leave out, with --replay")->delimiter(',');
  app.add_flag("--print", print, "only print the program of --replay");
  const std::map<std::string, Mistake> mistakes{
      {"waits", Mistake::kWaits},          {"edges", Mistake::kEdges},
      {"params", Mistake::kParams},        {"launches", Mistake::kLaunches},
      {"host-nodes", Mistake::kHostNodes}, {"managed", Mistake::kManaged},
      {"shared", Mistake::kShared}};
  app.add_option("--mistake", mistake, "break the programs, to see that the checker notices")
      ->transform(CLI::CheckedTransformer(mistakes));
  std::vector<int> second;
  app.add_option("--second", second, "")->delimiter(',')->group("");  // started by the first one
  CLI11_PARSE(app, argc, argv);
  if (!second.empty()) return run_second(second);
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);

  Program program;
  if (*replay_option) {
    program = make(replay, without);
    if (print) {
      std::fputs(describe(program).c_str(), stdout);
      return 0;
    }
  }
  signal(SIGALRM, on_hang);
  const Device device = open_device();
  if (*replay_option) {
    for (unsigned i = 0; i < repeat; ++i) {
      if (!try_one(device, program, without, mistake, limit)) return 1;
    }
    std::printf("%u runs were right\n", repeat);
    return 0;
  }
  std::printf("first seed %llu\n", static_cast<unsigned long long>(seed));
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  uint64_t done = 0;
  for (; Clock::now() < end; ++done) {
    if (!try_one(device, generate(seed + done), {}, mistake, limit)) return 1;
  }
  std::printf("%llu programs were right\n", static_cast<unsigned long long>(done));
  return 0;
}
