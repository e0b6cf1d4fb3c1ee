#include "client/bench/suite.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace fargpu::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kAnswerLimit = std::chrono::seconds(100);        // beyond what was asked for
constexpr double kLongestSlice = 0.25, kShortestSlice = 0.002;  // seconds of one measurement
constexpr double kLongestSessions = 0.5, kShortestSessions = 0.05;
constexpr unsigned kFewSessions = 4;                        // are measured even when it is late
constexpr double kStartsPart = 0.25, kSessionsPart = 0.25;  // of the whole time, at most

double seconds_until(Clock::time_point end) {
  return std::chrono::duration<double>(end - Clock::now()).count();
}
Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class Suite {
 public:
  Suite(const std::vector<Step>& plan, const std::vector<Way>& ways, const Budget& budget,
        const std::function<void(const Progress&)>& progress, Results& results)
      : plan_(plan), ways_(ways), budget_(budget), progress_(progress), results_(results) {}

  void run(unsigned rounds) {
    const double whole = std::chrono::duration<double>(budget_.end - budget_.begin).count();
    const bool has_sessions = !of_phase(Phase::kSessions).empty();
    run_phase(Phase::kStarts, UINT32_MAX, after(whole * kStartsPart));
    programs_.clear();
    run_phase(
        Phase::kCalls, rounds,
        budget_.end - std::chrono::duration_cast<Clock::duration>(
                          std::chrono::duration<double>(has_sessions ? whole * kSessionsPart : 0)));
    programs_.clear();
    run_phase(Phase::kSessions, UINT32_MAX, budget_.end);
    programs_.clear();
  }

 private:
  std::vector<const Step*> of_phase(Phase phase) const {
    std::vector<const Step*> steps;
    for (const Step& step : plan_)
      if (step.phase == phase) steps.push_back(&step);
    return steps;
  }

  // `rounds` at most, and no new one after `end`.
  void run_phase(Phase phase, unsigned rounds, Clock::time_point end) {
    const std::vector<const Step*> steps = of_phase(phase);
    if (steps.empty()) return;
    unsigned most = 0;
    for (const Step* step : steps) most = std::max(most, step->rounds == 0 ? rounds : step->rounds);
    for (unsigned round = 0; round < most; ++round) {
      asked_bare_.clear();
      for (size_t i = 0; i < steps.size(); ++i) {
        const Step& step = *steps[i];
        if (step.rounds != 0 && round >= step.rounds) continue;
        const bool late = Clock::now() > end;
        if (late && round > 0) return;
        const double left = static_cast<double>((most - round) * steps.size() - i) *
                            static_cast<double>(ways_.size());
        slice_ = std::clamp(seconds_until(end) / left * 0.8, kShortestSlice, kLongestSlice);
        if (phase == Phase::kSessions) {
          measure_sessions(step, left);
        } else {
          measure(step, round);
        }
      }
    }
  }

  // In each way, in another order each round.
  void measure(const Step& step, unsigned round) {
    for (size_t i = 0; i < ways_.size(); ++i) {
      const Way& way = ways_[(i + round) % ways_.size()];
      if (round >= way.rounds) continue;
      report(step, way);
      if (way.kind == Way::Kind::kBare) {
        measure_bare(step, way);
      } else {
        measure_way(step, way);
      }
    }
  }

  void measure_way(const Step& step, const Way& way) {
    Question question = step.question;
    question.seconds = slice_;
    const auto answer = ask(way, question, case_name(step.records.front(), question), step.phase);
    if (!answer) return;
    for (const Record& record : answer->records) {
      if (std::find(step.records.begin(), step.records.end(), record.name) == step.records.end())
        continue;
      keep(record, way, question, bare_name(step));
    }
  }

  void measure_bare(const Step& step, const Way& way) {
    if (step.bare.name.empty()) return;
    const Question question{step.bare.name, "", step.bare.bytes, step.bare.count, slice_};
    const std::string name = bare_name(step);
    if (!asked_bare_.insert({way.name, name}).second) return;
    const auto answer = ask(way, question, name, Phase::kCalls);
    if (!answer) return;
    for (const Record& record : answer->records) keep(record, way, question, "");
  }

  static std::string bare_name(const Step& step) {
    if (step.bare.name.empty()) return "";
    return case_name(step.bare.name, {step.bare.name, "", step.bare.bytes, step.bare.count, 0});
  }

  std::optional<Answer> ask(const Way& way, const Question& question, const std::string& name,
                            Phase phase) {
    if (lost_.contains(way.name) || skipped_.contains({name, way.name})) return std::nullopt;
    Program* const program = program_of(way, phase);
    if (program == nullptr) return std::nullopt;
    auto answer = program->ask(question, after(question.seconds) + kAnswerLimit);
    if (!answer.ok()) {
      const Status& why = answer.status();
      skip(name, way.name, why.message());
      // Some errors stay, so the next case gets another process.
      programs_.erase({way.name, starts_anew(way, phase)});
      if (why.code() != StatusCode::kDriver) lose(way, why.message());
      return std::nullopt;
    }
    if (!answer->skipped.empty()) {
      skip(name, way.name, answer->skipped);
      return std::nullopt;
    }
    return std::move(*answer);
  }

  static bool starts_anew(const Way& way, Phase phase) {
    return phase != Phase::kCalls && !way.starts.empty();
  }

  // Started when it is first asked. Null: it could not be, and the way is lost.
  Program* program_of(const Way& way, Phase phase) {
    const bool starts = starts_anew(way, phase);
    const auto key = std::pair(way.name, starts);
    if (const auto found = programs_.find(key); found != programs_.end()) return &found->second;
    auto started = Program::start(starts ? way.starts : way.calls, way.environment,
                                  Clock::now() + kAnswerLimit);
    if (!started.ok()) {
      lose(way, started.status().message());
      return nullptr;
    }
    if (!starts) results_.about["ways"][way.name]["about"] = started->about();
    return &programs_.emplace(key, std::move(*started)).first->second;
  }

  void lose(const Way& way, const std::string& why) {
    if (lost_.insert(way.name).second && skipped_.insert({"", way.name}).second)
      results_.skips.push_back({"", way.name, why});
  }
  void skip(const std::string& name, const std::string& way, const std::string& why) {
    if (skipped_.insert({name, way}).second) results_.skips.push_back({name, way, why});
  }

  void keep(const Record& record, const Way& way, const Question& question,
            const std::string& bare) {
    const std::string name = case_name(record.name, question);
    const auto [found, is_new] = figures_.try_emplace({name, way.name}, results_.figures.size());
    if (is_new)
      results_.figures.push_back({name, way.name, record.name, question, bare, {}, {}, {}});
    Figure& figure = results_.figures[found->second];
    figure.times.merge(record.times);
    figure.round_medians.push_back(static_cast<double>(record.times.median()));
    figure.shares = record.shares;
  }

  // Half of the time is for starting them. Four times the sessions take at most about four times
  // as long to start.
  void measure_sessions(const Step& step, double left) {
    slice_ = std::clamp(seconds_until(budget_.end) / left / 2, kShortestSessions, kLongestSessions);
    const double measuring = slice_ * static_cast<double>(ways_.size());
    if (step.question.count > kFewSessions &&
        seconds_until(budget_.end) < 4 * last_start_seconds_ + measuring) {
      for (const Way& way : ways_)
        if (way.kind != Way::Kind::kBare)
          skip(case_name(step.records.front(), step.question), way.name, "no time left");
      return;
    }
    const Clock::time_point begin = Clock::now();
    measure(step, 0);
    last_start_seconds_ = std::max(0.0, -seconds_until(begin) - measuring);
  }

  void report(const Step& step, const Way& way) {
    const double whole = std::chrono::duration<double>(budget_.end - budget_.begin).count();
    const double left = std::max(0.0, seconds_until(budget_.end));
    progress_({std::clamp(1 - left / whole, 0.0, 1.0), left,
               way.name + " " + case_name(step.records.front(), step.question)});
  }

  const std::vector<Step>& plan_;
  const std::vector<Way>& ways_;
  const Budget& budget_;
  const std::function<void(const Progress&)>& progress_;
  Results& results_;
  std::map<std::pair<std::string, bool>, Program> programs_;  // by way, and whether for starts
  std::map<std::pair<std::string, std::string>, size_t> figures_;
  std::set<std::pair<std::string, std::string>> asked_bare_;  // this round
  std::set<std::pair<std::string, std::string>> skipped_;
  std::set<std::string> lost_;
  double slice_ = kLongestSlice;
  double last_start_seconds_ = 0;
};

}  // namespace

void run_suite(const std::vector<Step>& plan, const std::vector<Way>& ways, unsigned rounds,
               const Budget& budget, const std::function<void(const Progress&)>& progress,
               Results& results) {
  Suite(plan, ways, budget, progress, results).run(rounds);
}

}  // namespace fargpu::bench
