// `fargpu bench app`: what slower links would cost, on given numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/bench/advice.h"
#include "client/bench/prediction_json.h"
#include "client/bench/show.h"
#include "common/rpc/link_estimate.h"

namespace fargpu::bench {
namespace {

using rpc::LinkEstimate;
using rpc::LinkUse;
using ::testing::HasSubstr;
using Measured = bench::Run;  // in a test, Run is gtest's

constexpr size_t k10Gbps = 3;  // 0.8 ns for each byte
static_assert(rpc::kLinkRates[k10Gbps] == 10e9);
constexpr double kUs = 1e3, kMs = 1e6;

TEST(LinkEstimate, WaitsOneAfterAnotherAddUp) {
  LinkEstimate estimate;
  LinkUse link;
  for (int i = 0; i < 3; ++i) {
    estimate.send(link, i * 10 * kUs, 100);
    estimate.answer(link, link.last, i * 10 * kUs + 5 * kUs, 50, true, i + 1);
  }
  EXPECT_EQ(estimate.times().round_trips, 3U);
  EXPECT_EQ(estimate.times().in_a_row, 3U);
  EXPECT_EQ(estimate.times().most_of_a_thread, 3U);
  // 150 bytes each.
  EXPECT_NEAR(estimate.times().in_order[k10Gbps], 3 * 150 * 0.8, 1e-6);
}

TEST(LinkEstimate, WaitsAtTheSameTimeCostOne) {
  LinkEstimate estimate;
  LinkUse link;
  estimate.send(link, 0, 100);
  const rpc::LinkMark first = link.last;
  estimate.send(link, 1 * kUs, 100);
  const rpc::LinkMark second = link.last;
  estimate.answer(link, first, 10 * kUs, 0, true, 1);
  estimate.answer(link, second, 11 * kUs, 0, true, 1);
  EXPECT_EQ(estimate.times().round_trips, 2U);
  EXPECT_EQ(estimate.times().in_a_row, 1U);
  EXPECT_EQ(estimate.times().most_of_a_thread, 1U);
}

TEST(LinkEstimate, NotYetIsNoRoundTrip) {
  LinkEstimate estimate;
  LinkUse link;
  estimate.send(link, 0, 100);
  estimate.answer(link, link.last, 5 * kUs, 0, false, 0);
  EXPECT_EQ(estimate.times().round_trips, 0U);
  EXPECT_EQ(estimate.times().in_a_row, 0U);
}

TEST(LinkEstimate, BytesPassWhileTheProgramComputes) {
  LinkEstimate estimate;
  LinkUse link;
  estimate.send(link, 0, 1'000'000);  // 0.8 ms
  estimate.send(link, 2 * kMs, 0);    // later than that
  estimate.answer(link, link.last, 2.1 * kMs, 0, true, 1);
  EXPECT_NEAR(estimate.times().in_order[k10Gbps], 0, 1e-6);
  EXPECT_NEAR(estimate.times().in_order[0], 6 * kMs, 1e-3);  // of 8 ms
}

TEST(LinkEstimate, WorkBehindOrBesideBytes) {
  LinkEstimate estimate;
  LinkUse link;
  for (int i = 0; i < 4; ++i) estimate.send(link, i * 10.0, 1'000'000);  // 0.8 ms each
  estimate.answer(link, link.last, 100 * kMs, 0, true, 1);
  EXPECT_NEAR(estimate.times().in_order[k10Gbps], 3.2 * kMs, 100);
  EXPECT_NEAR(estimate.times().overlapped[k10Gbps], 0.8 * kMs, 100);
}

TEST(LinkEstimate, TheProgramWaitsWhenTooMuchIsUnderWay) {
  LinkEstimate estimate;
  LinkUse link;
  for (int i = 0; i < 8; ++i) estimate.send(link, 0, 1 << 20);
  EXPECT_NEAR(estimate.times().in_order[k10Gbps], 4 * (1 << 20) * 0.8, 1e-3);
}

TEST(LinkEstimate, AnAnswersBytesPassBehindIt) {
  LinkEstimate estimate;
  LinkUse link;
  estimate.send(link, 0, 0);
  estimate.answer(link, link.last, 1 * kMs, 1'000'000, true, 1);
  EXPECT_NEAR(estimate.times().in_order[k10Gbps], 0.8 * kMs, 1e-3);
  // They could have come since the question was sent.
  EXPECT_NEAR(estimate.times().overlapped[k10Gbps], 0, 1e-3);
}

TEST(LinkEstimate, WhatComesWithAnAnswerIsNoSecondRoundTrip) {
  LinkEstimate estimate;
  LinkUse link;
  estimate.send(link, 0, 0);
  estimate.answer(link, link.last, 1 * kMs, 0, true, 1);
  EXPECT_FALSE(link.awaits_answer);
  estimate.notice(link, 1.1 * kMs, 1'000'000);
  estimate.see_notice(link, estimate.times().in_a_row, link.awaits_answer, 1);
  EXPECT_EQ(estimate.times().in_a_row, 1U);
  EXPECT_NEAR(estimate.times().in_order[k10Gbps], 0.8 * kMs, 1e-3);
}

ProcessReport process(uint64_t begin_ms, uint64_t ms, uint64_t in_a_row) {
  ProcessReport of;
  of.begin_ns = begin_ms * 1'000'000;
  of.nanoseconds = ms * 1'000'000;
  of.round_trips = of.in_a_row = of.most_of_a_thread = in_a_row;
  of.rates = {{10e9, 8 * kMs, 4 * kMs}, {100e9, 0.8 * kMs, 0.4 * kMs}};
  return of;
}

Measured run_of(std::vector<ProcessReport> processes) {
  return {100 * kMs, 0, std::move(processes)};
}

double time_over(const Measured& run, const Link& link, const Shares& shares = {}) {
  return predict(run, link, shares).nanoseconds;
}

TEST(Predict, AddsRoundTripsAndBytes) {
  const Measured run = run_of({process(0, 90, 50)});
  EXPECT_NEAR(time_over(run, {200 * kUs, 0}), 110 * kMs, 1);
  EXPECT_NEAR(time_over(run, {0, 10e9}), 108 * kMs, 1);
  EXPECT_NEAR(time_over(run, {200 * kUs, 10e9}), 118 * kMs, 1);
  EXPECT_NEAR(time_over(run, {0, 5e9}), 116 * kMs, 1);
  EXPECT_NEAR(time_over(run, {0, 20e9}), 104 * kMs, 1);
  EXPECT_NEAR(time_over(run, {0, 400e9}), 100.2 * kMs, 1);
}

TEST(Predict, OnlyWhatTheLinkHasMoreThanTheMeasuredOne) {
  Measured run = run_of({process(0, 90, 50)});
  run.rtt_ns = 50 * kUs;
  EXPECT_NEAR(time_over(run, {200 * kUs, 0}), 107.5 * kMs, 1);
  EXPECT_NEAR(time_over(run, {10 * kUs, 0}), 98 * kMs, 1);
}

TEST(Predict, ProcessesAtTheSameTimeAndBehindEachOther) {
  const Link link{1 * kMs, 0};
  EXPECT_NEAR(time_over(run_of({process(0, 40, 10), process(20, 40, 30)}), link), 130 * kMs, 1);
  EXPECT_NEAR(time_over(run_of({process(0, 40, 10), process(40, 40, 30)}), link), 140 * kMs, 1);
  EXPECT_NEAR(time_over(run_of({process(50, 9, 5), process(0, 40, 10), process(0, 50, 20)}), link),
              125 * kMs, 1);
}

TEST(Predict, ARangeAndWhereInItTheTruthLies) {
  ProcessReport threads = process(0, 90, 40);
  threads.most_of_a_thread = 10;
  const Measured run = run_of({threads});
  const Link link{1 * kMs, 10e9};
  const Prediction one = predict(run, link, {0.5, 0.25});
  EXPECT_NEAR(one.shortest, 114 * kMs, 1);
  EXPECT_NEAR(one.longest, 148 * kMs, 1);
  EXPECT_NEAR(one.nanoseconds, (100 + 25 + 5) * kMs, 1);
  EXPECT_NEAR(fit_waits(run, {1 * kMs, 0}, 125 * kMs), 0.5, 1e-9);
  EXPECT_NEAR(fit_bytes(run, {0, 1e9}, (100 + 50) * kMs, 1), 0.25, 1e-9);
  EXPECT_EQ(fit_waits(run, {1 * kMs, 0}, 500 * kMs), 1);
  EXPECT_EQ(fit_waits(run, {1 * kMs, 0}, 1 * kMs), 0);
}

TEST(Predict, NothingIsFittedWhereBothAreTheSame) {
  const Measured run = run_of({process(0, 90, 50)});
  EXPECT_EQ(fit_waits(run, {200 * kUs, 0}, 105 * kMs), 1);
}

FunctionCalls function(const char* name, uint64_t round_trips, uint64_t received) {
  FunctionCalls of;
  of.name = name;
  of.waited = of.round_trips = round_trips;
  of.bytes_received = received;
  return of;
}

TEST(Advice, NamesTheWaitsThatCostMost) {
  ProcessReport one = process(0, 90, 600);
  one.rates = {{10e9, 0, 0}};
  one.functions = {function("cuCtxSynchronize", 88, 0), function("cuMemcpyDtoH_v2", 512, 2048),
                   function("cuInit", 0, 0)};
  const auto all = advise(run_of({one}), {200 * kUs, 10e9}, {}, 5);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(to_text(all[0]), "512 waits in cuMemcpyDtoH_v2, 4 bytes each: 47 % of the time");
  EXPECT_EQ(to_text(all[1]), "88 waits in cuCtxSynchronize: 8 % of the time");
  EXPECT_NE(instead_of("cuMemcpyDtoH_v2"), "");
  EXPECT_EQ(instead_of("cuInit"), "");
}

TEST(Advice, NamesWhereTheWaitsWereMade) {
  const auto place = [](const char* function, const char* name, uint64_t round_trips) {
    PlaceCalls of;
    of.function = function;
    of.place = name;
    of.round_trips = of.waited = round_trips;
    return of;
  };
  ProcessReport one = process(0, 90, 600), two = process(0, 90, 600);
  one.functions = {function("cuMemcpyDtoH_v2", 512, 2048)};
  one.places = {place("cuMemcpyDtoH_v2", "a.py:1 in f", 12),
                place("cuMemcpyDtoH_v2", "b.py:2 in g", 300), place("cuCtxSynchronize", "c", 900),
                place("cuMemcpyDtoH_v2", "d.py:2 in g", 0)};
  one.places[1].library = "torch/_tensor.py:3 in item";
  two.places = {place("cuMemcpyDtoH_v2", "a.py:1 in f", 200)};
  const auto all = advise(run_of({one, two}), {200 * kUs, 10e9}, {}, 5);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_THAT(places_to_text(all[0], 5),
              ::testing::ElementsAre("from b.py:2 in g: 300 by torch/_tensor.py:3 in item",
                                     "from a.py:1 in f: 212"));
  EXPECT_EQ(places_to_text(all[0], 1).size(), 1U);
}

constexpr const char* kReport =
    R"({"fargpu_report":1,"process":"app","id":7,"begin_ns":5,"nanoseconds":1000,)"
    R"("functions":[{"name":"cuInit","local":1,"sent":0,"waited":2,"waited_ns":30,)"
    R"("inside_ns":40,"round_trips":2,"bytes_sent":0,"bytes_received":0,"not_supported":0}],)"
    R"("copies":[{"to_device":true,"route":"frames","copies":1,"bytes":12}],)"
    R"("images":{"sent":1,"bytes":9,"bytes_sent":8,"found":0},)"
    R"("link":{"round_trips":2,"in_a_row":2,"most_of_a_thread":2,)"
    R"("rates":[{"bits_per_second":1000,"in_order_ns":3,"overlapped_ns":1}]}})";

TEST(File, HasWhatALinkAddsAndWhatToChange) {
  ProcessReport one = process(0, 90, 600);
  one.functions = {function("cuMemcpyDtoH_v2", 512, 2048), function("cuCtxSynchronize", 88, 0)};
  one.functions[1].waited_ns = 5;
  one.looking_ns = 3;
  const Study study{"app", run_of({one}), {}, {{{200 * kUs, 0}, 150 * kMs}}};
  const Json json = to_json(study, {{{1 * kMs, 10e9}}, {0, 200 * kUs}, {10e9}, {200 * kUs, 10e9}});
  ASSERT_EQ(json["links"].size(), 3U);
  const Json& given = json["links"][0];
  EXPECT_TRUE(given["given"]);
  EXPECT_FALSE(json["links"][1]["given"]);
  EXPECT_NEAR(given["waits_ns"].get<double>(), 600 * kMs, 1);
  EXPECT_NEAR(given["bytes_ns"].get<double>(), 8 * kMs, 1);
  EXPECT_NEAR(given["nanoseconds"].get<double>(), 708 * kMs, 1);
  EXPECT_EQ(json["fits"][0]["nanoseconds"], 150 * kMs);
  EXPECT_EQ(json["calls"]["waited"], 600);
  EXPECT_EQ(json["functions"][0]["name"], "cuCtxSynchronize");
  EXPECT_EQ(json["looking_ns"], 3);
  EXPECT_EQ(json["advice"][0]["function"], "cuMemcpyDtoH_v2");
  EXPECT_EQ(json["at"]["rtt_ns"], 200 * kUs);
}

TEST(Reports, AreReadLineByLine) {
  const auto all = read_reports(std::string(kReport) + "\n" + kReport + "\n");
  ASSERT_TRUE(all.ok()) << all.status().message();
  ASSERT_EQ(all->size(), 2U);
  EXPECT_EQ((*all)[1].name, "app");
  EXPECT_TRUE((*all)[1].copies[0].to_device);
  EXPECT_EQ(functions_of(*all)[0].waited, 4U);
  EXPECT_THAT(describe_run(run_of(*all), "app"), HasSubstr("24 bytes in 2 copies: frames 2"));
}

TEST(Reports, HavePlacesWhereTheyWereAskedFor) {
  std::string text = kReport;
  const std::string before = R"("link":)";
  text.insert(text.find(before),
              R"("looking_ns":9,"places":[{"function":"cuInit","place":"a.py:1 in f",)"
              R"("library":"b.py:2 in g","waited":2,"waited_ns":30,"round_trips":2,)"
              R"("bytes_sent":1,"bytes_received":4}],)");
  const auto all = read_reports(text + "\n" + kReport + "\n" + text);
  ASSERT_TRUE(all.ok()) << all.status().message();
  const auto places = places_of(*all);
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].waited, 4U);
  EXPECT_EQ(places[0].bytes_received, 8U);
  EXPECT_THAT(describe_places(run_of(*all)), HasSubstr("a.py:1 in f (cuInit, by b.py:2 in g)"));
  EXPECT_EQ(describe_places(run_of({(*all)[1]})), "");
  text.replace(text.find("\"library\""), 9, "\"nothing\"");
  EXPECT_FALSE(read_reports(text).ok());
}

TEST(Reports, ThatAreWrongAreRefusedByLine) {
  const auto refuse = [](const std::string& from, const std::string& to) {
    std::string text = kReport;
    text.replace(text.find(from), from.size(), to);
    const auto read = read_reports(std::string(kReport) + "\n" + text);
    EXPECT_FALSE(read.ok()) << text;
    return read.status().message();
  };
  EXPECT_THAT(refuse("\"waited\":2", "\"waited\":-2"), HasSubstr("line 2: 'waited'"));
  EXPECT_THAT(refuse("fargpu_report\":1", "fargpu_report\":2"), HasSubstr("another release"));
  EXPECT_THAT(refuse("[{\"bits_per_second\":1000,\"in_order_ns\":3,\"overlapped_ns\":1}]", "[]"),
              HasSubstr("'rates' is empty"));
  EXPECT_THAT(refuse("1000,\"in", "0,\"in"), HasSubstr("'rates' is not in order"));
  EXPECT_THAT(refuse("{\"fargpu", "["), HasSubstr("no JSON"));
}

}  // namespace
}  // namespace fargpu::bench
