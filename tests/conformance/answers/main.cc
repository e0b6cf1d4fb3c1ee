// answers [--captures] [--jobs N] [--limit SECONDS] [--leave-out FILE] [--errors FILE]
//         [FUNCTION...]
// answers --list
//
// Each function's cases run in a process of their own, one after another, since a driver may crash
// on a bad handle: the line then says CRASHED and the signal, or HUNG after --limit seconds, and a
// new process goes on with the next case. Without names all functions are called. Cases named in
// FILE ("function case" a line) are not called. --captures: instead of these cases, each function
// is called rightly while a stream is being captured.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/conformance/answers/answers.h"

namespace answers {
namespace {

// A case left its context with an error that stays: the process has done its work.
constexpr int kGoOnElsewhere = 77;

// Shared by the process that calls and the one that watches it.
struct Progress {
  std::atomic<long> begun;  // cases that were begun, the one that runs included
  char current[256];        // its name
};

class CallingRunner final : public Runner {
 public:
  CallingRunner(const Function& function, Progress& progress, long done,
                const std::set<std::string>& left_out, const std::vector<Phase>& phases)
      : function_(function),
        progress_(progress),
        done_(done),
        left_out_(left_out),
        phases_(phases) {}

  void run() {
    for (Phase phase : phases_) {
      phase_ = phase;
      started_ = false;
      function_.run(*this, phase, function_.fresh);
      if (is_missing_) return;
    }
    world_.finish();
  }

 private:
  bool begin(const std::string& name) override {
    if (left_out_.contains(std::string(function_.name) + " " + name)) return false;
    if (count_++ < done_) return false;
    std::snprintf(progress_.current, sizeof progress_.current, "%s", name.c_str());
    progress_.begun.store(count_);
    if (!started_) world_.start(phase_);
    started_ = true;
    return true;
  }

  void end(const std::string& name, CUresult result, const Line& line) override {
    const CUresult later = world_.synchronise();
    std::printf("%s %s: %s%s%s%s\n", function_.name, name.c_str(), result_name(result),
                line.values().c_str(), later == CUDA_SUCCESS ? "" : ", then ",
                later == CUDA_SUCCESS ? "" : result_name(later));
    std::fflush(stdout);
    if (later != CUDA_SUCCESS) {
      world_.finish();
      std::_Exit(kGoOnElsewhere);
    }
  }

  void missing() override {
    if (!is_missing_) std::printf("%s: not exported\n", function_.name);
    is_missing_ = true;
  }

  const Function& function_;
  Progress& progress_;
  const long done_;
  const std::set<std::string>& left_out_;
  const std::vector<Phase>& phases_;
  Phase phase_ = Phase::kBeforeInit;
  bool started_ = false;
  bool is_missing_ = false;
  long count_ = 0;
};

struct Options {
  unsigned jobs = 1;
  double limit = 20;
  std::string errors = "/dev/null";
  std::set<std::string> left_out;
  std::vector<Phase> phases{Phase::kBeforeInit, Phase::kWithoutContext, Phase::kWithContext};
  std::vector<const Function*> functions;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The processes that call one function, one after another.
class Watched {
 public:
  Watched(const Function& function, const Options& options)
      : function_(function), options_(options) {
    void* shared =
        mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) std::abort();
    progress_ = new (shared) Progress{};
    output_ = memfd_create("answers", 0);
    start();
  }

  // True when all cases are done.
  bool poll() {
    if (done_) return true;
    int status = 0;
    const pid_t ended = waitpid(child_, &status, WNOHANG);
    if (ended == 0) {
      if (progress_->begun.load() != seen_) {
        seen_ = progress_->begun.load();
        since_ = now();
      } else if (now() - since_ > options_.limit) {
        kill(child_, SIGKILL);
        waitpid(child_, &status, 0);
        note("HUNG");
        start();
      }
      return false;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      done_ = true;
      return true;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == kGoOnElsewhere) {
      start();
      return false;
    }
    if (progress_->begun.load() == started_at_) {  // before the first case, or after the last one
      note("ENDED outside a case");
      done_ = true;
      return true;
    }
    if (WIFSIGNALED(status)) {
      note((std::string("CRASHED ") + strsignal(WTERMSIG(status))).c_str());
    } else {
      note("CRASHED exit");
    }
    start();
    return false;
  }

  void print() {
    char buffer[65536];
    lseek(output_, 0, SEEK_SET);
    for (ssize_t got; (got = read(output_, buffer, sizeof buffer)) > 0;)
      std::fwrite(buffer, 1, static_cast<size_t>(got), stdout);
    close(output_);
  }

 private:
  void start() {
    started_at_ = seen_ = progress_->begun.load();
    since_ = now();
    std::fflush(stdout);
    child_ = fork();
    if (child_ == 0) call();
  }

  [[noreturn]] void call() {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    dup2(output_, STDOUT_FILENO);
    const int errors = open(options_.errors.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (errors >= 0) dup2(errors, STDERR_FILENO);
    CallingRunner(function_, *progress_, started_at_, options_.left_out, options_.phases).run();
    std::fflush(stdout);
    std::_Exit(0);
  }

  void note(const char* what) {
    dprintf(output_, "%s %s: %s\n", function_.name, progress_->current, what);
  }

  const Function& function_;
  const Options& options_;
  Progress* progress_ = nullptr;
  int output_ = -1;
  pid_t child_ = -1;
  long started_at_ = 0;
  long seen_ = 0;
  double since_ = 0;
  bool done_ = false;
};

int run(const Options& options) {
  std::vector<std::unique_ptr<Watched>> all;
  size_t printed = 0;
  while (printed < options.functions.size()) {
    size_t running = 0;
    for (size_t i = printed; i < all.size(); ++i) running += all[i]->poll() ? 0 : 1;
    while (running < options.jobs && all.size() < options.functions.size()) {
      all.push_back(std::make_unique<Watched>(*options.functions[all.size()], options));
      ++running;
    }
    while (printed < all.size() && all[printed]->poll()) all[printed++]->print();
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return 0;
}

std::set<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::set<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.insert(line);
  return lines;
}

}  // namespace
}  // namespace answers

int main(int argc, char** argv) {
  using namespace answers;
  Options options;
  std::set<std::string> wanted;
  std::string left_out;
  bool list = false, captures = false, give = false;
  CLI::App app("Calls every supported function rightly and wrongly.", "answers");
  app.add_flag("--list", list, "print the functions' names instead");
  app.add_flag("--give", give)->group("");  // started by this program itself
  app.add_flag("--captures", captures,
               "instead of these cases: each function called rightly while a stream is captured");
  app.add_option("--jobs", options.jobs, "functions at a time")->check(CLI::Range(1, 256));
  app.add_option("--limit", options.limit, "seconds for one call")->check(CLI::PositiveNumber);
  app.add_option("--errors", options.errors, "file for what the processes write to stderr");
  app.add_option("--leave-out", left_out, "file with cases to leave out, one on a line")
      ->check(CLI::ExistingFile);
  app.add_option("functions", wanted, "these alone");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (give) return give_handles();
  if (list) {
    for (size_t f = 0; f < kFunctionCount; ++f) std::printf("%s\n", kFunctions[f].name);
    return 0;
  }
  if (captures) options.phases = {Phase::kDuringCapture};
  if (!left_out.empty()) options.left_out = lines_of(left_out);
  for (size_t f = 0; f < kFunctionCount; ++f)
    if (wanted.empty() || wanted.contains(kFunctions[f].name))
      options.functions.push_back(&kFunctions[f]);
  return run(options);
}
