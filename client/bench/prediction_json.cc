#include "client/bench/prediction_json.h"

#include <algorithm>

#include "client/bench/advice.h"

namespace fargpu::bench {

namespace {

constexpr size_t kMostAdvice = 5, kMostPlacesOfAdvice = 3;

Json link_json(const Link& link) {
  return {{"rtt_ns", link.rtt_ns}, {"bits_per_second", link.bits_per_second}};
}

Json predicted(const Study& study, const Link& link, bool is_given) {
  const Prediction one = predict(study.run, link, study.shares);
  // What the round trips take, and what the bytes take beside them.
  const double waits = predict(study.run, {link.rtt_ns, 0}, study.shares).nanoseconds;
  Json json = link_json(link);
  json.update({{"given", is_given},
               {"nanoseconds", one.nanoseconds},
               {"shortest", one.shortest},
               {"longest", one.longest},
               {"waits_ns", waits - study.run.nanoseconds},
               {"bytes_ns", one.nanoseconds - waits}});
  return json;
}

Json links(const Study& study, const Wanted& wanted) {
  Json all = Json::array();
  for (const Link& link : wanted.given) all.push_back(predicted(study, link, true));
  for (const double rtt : wanted.rtts_ns)
    for (const double rate : wanted.bits_per_second)
      all.push_back(predicted(study, {rtt, rate}, false));
  return all;
}

Json calls(const Run& run) {
  FunctionCalls sum;
  for (const FunctionCalls& of : functions_of(run.processes)) sum += of;
  uint64_t in_a_row = 0;
  for (const ProcessReport& process : run.processes) in_a_row += process.in_a_row;
  return {{"local", sum.local},
          {"sent", sum.sent},
          {"waited", sum.waited},
          {"inside_ns", sum.inside_ns},
          {"waited_ns", sum.waited_ns},
          {"round_trips", sum.round_trips},
          {"in_a_row", in_a_row},
          {"bytes_sent", sum.bytes_sent},
          {"bytes_received", sum.bytes_received}};
}

Json waits(const WaitCounts& of) {
  return {{"waited", of.waited},
          {"waited_ns", of.waited_ns},
          {"round_trips", of.round_trips},
          {"bytes_sent", of.bytes_sent},
          {"bytes_received", of.bytes_received}};
}

Json functions(const Run& run) {
  std::vector<FunctionCalls> all = functions_of(run.processes);
  std::erase_if(all, [](const FunctionCalls& of) { return of.waited == 0; });
  std::stable_sort(all.begin(), all.end(), [](const FunctionCalls& a, const FunctionCalls& b) {
    return a.waited_ns > b.waited_ns;
  });
  Json json = Json::array();
  for (const FunctionCalls& of : all) {
    json.push_back({{"name", of.name}});
    json.back().update(waits(of));
  }
  return json;
}

Json places(const Run& run) {
  Json json = Json::array();
  for (const PlaceCalls& of : places_of(run.processes)) {
    json.push_back({{"place", of.place}, {"library", of.library}, {"function", of.function}});
    json.back().update(waits(of));
  }
  return json;
}

Json advice(const Study& study, const Link& at) {
  Json json = Json::array();
  for (const Advice& one : advise(study.run, at, study.shares, kMostAdvice)) {
    json.push_back({{"text", to_text(one)},
                    {"function", one.function.name},
                    {"share", one.share},
                    {"places", places_to_text(one, kMostPlacesOfAdvice)},
                    {"instead", instead_of(one.function.name)}});
  }
  return json;
}

}  // namespace

Json to_json(const Study& study, const Wanted& wanted) {
  const Run& run = study.run;
  Json json{{"fargpu_prediction", 1},
            {"program", study.program},
            {"nanoseconds", run.nanoseconds},
            {"rtt_ns", run.rtt_ns},
            {"processes", run.processes.size()},
            {"shares", {{"waits", study.shares.waits}, {"bytes", study.shares.bytes}}},
            {"fits", Json::array()}};
  for (const FitRun& fit : study.fits) {
    json["fits"].push_back(link_json(fit.link));
    json["fits"].back()["nanoseconds"] = fit.nanoseconds;
  }
  uint64_t looking = 0;
  for (const ProcessReport& process : run.processes) looking += process.looking_ns;
  json["links"] = links(study, wanted);
  json["calls"] = calls(run);
  json["functions"] = functions(run);
  json["looking_ns"] = looking;
  json["places"] = places(run);
  json["at"] = predicted(study, wanted.at, false);
  json["advice"] = advice(study, wanted.at);
  return json;
}

}  // namespace fargpu::bench
