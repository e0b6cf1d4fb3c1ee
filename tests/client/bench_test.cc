// `fargpu bench` without a GPU: histograms, what travels between its programs, what is measured,
// and what counts as a change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "client/bench/compare.h"
#include "client/bench/figures/perftest_report.h"
#include "client/bench/page/report_page.h"
#include "client/bench/plan.h"
#include "client/bench/results.h"
#include "client/bench/table.h"

namespace fargpu::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Histogram, KnowsEveryTimeToOnePercent) {
  for (uint64_t time = 1; time < Histogram::kLongest; time = time * 5 / 4 + 1) {
    Histogram times;
    times.add(1);
    times.add(time);
    times.add(Histogram::kLongest);
    EXPECT_NEAR(static_cast<double>(times.median()), static_cast<double>(time),
                static_cast<double>(time) * 0.01);
  }
}

TEST(Histogram, PercentilesOfAHundredTimes) {
  Histogram times;
  for (uint64_t time = 1; time <= 100; ++time) times.add(time);
  EXPECT_EQ(times.percentile(50), 50U);
  EXPECT_EQ(times.percentile(90), 90U);
  EXPECT_EQ(times.percentile(99), 99U);
  EXPECT_EQ(times.percentile(99.9), 100U);
  EXPECT_EQ(times.smallest(), 1U);
  EXPECT_EQ(times.largest(), 100U);
  EXPECT_DOUBLE_EQ(times.mean(), 50.5);
}

TEST(Histogram, MergedIsAsAddedTogether) {
  Histogram first, second, both;
  for (uint64_t time = 10; time < 10'000'000; time *= 3) {
    first.add(time);
    both.add(time);
    second.add(time + 1, 4);
    both.add(time + 1, 4);
  }
  first.merge(second);
  first.merge({});
  EXPECT_EQ(first.buckets(), both.buckets());
  EXPECT_EQ(first.count(), both.count());
  EXPECT_EQ(first.largest(), both.largest());
}

TEST(Histogram, AnEmptyOneIsAllZero) {
  const Histogram times;
  EXPECT_EQ(times.percentile(99), 0U);
  EXPECT_EQ(times.smallest(), 0U);
  EXPECT_EQ(times.mean(), 0);
}

TEST(Histogram, WhatIsLongerThanTheLongestCountsAsThat) {
  Histogram times;
  times.add(UINT64_MAX);
  EXPECT_EQ(times.largest(), Histogram::kLongest);
}

TEST(Exchange, AnAnswerComesAsItWent) {
  Answer answer{{{"launch", {}, {{7, 100, 200}}}}, ""};
  answer.records[0].times.add(1234567, 3);
  answer.records[0].times.add(99);
  const auto json = parse_json(to_line(to_json(answer)), "test");
  ASSERT_TRUE(json.ok());
  const auto read = read_answer(*json);
  ASSERT_TRUE(read.ok()) << read.status().message();
  const Record& record = read->records.at(0);
  EXPECT_EQ(record.name, "launch");
  EXPECT_EQ(record.times.count(), 4U);
  EXPECT_EQ(record.times.largest(), 1234567U);
  EXPECT_EQ(record.shares.at(0).p99, 200U);
}

TEST(Exchange, RefusesWhatIsNoAnswer) {
  for (const char* line :
       {"3", "{}", R"({"records":3})", R"({"records":[3]})", R"({"records":[{"name":3}]})",
        R"({"records":[{"name":"a","times":3}]})", R"({"records":[{"name":"a","times":[[1]]}]})",
        R"({"records":[{"name":"a","times":[[1,-2]]}]})",
        R"({"records":[{"name":"a","times":[],"shares":[{"count":"x"}]}]})"}) {
    const auto json = parse_json(line, "test");
    ASSERT_TRUE(json.ok()) << line;
    EXPECT_EQ(read_answer(*json).status().code(), StatusCode::kInvalidArgument) << line;
  }
}

TEST(Exchange, RefusesWhatIsNoQuestion) {
  for (const char* line :
       {R"({"name":"a","memory":"","bytes":-1,"count":0,"seconds":1})",
        R"({"name":"a","memory":"","bytes":1,"count":1000000,"seconds":1})",
        R"({"name":"a","memory":"","bytes":1,"count":0,"seconds":-1})",
        R"({"name":"a","memory":"","bytes":1000000000000000000,"count":0,"seconds":1})"}) {
    EXPECT_FALSE(read_question(*parse_json(line, "test")).ok()) << line;
  }
}

TEST(PerftestReport, ItsLastLineHasTheFigures) {
  const std::string report =
      " GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:01\n"
      " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
      " 65536      100              62.45              55.85  \t\t   0.000894\n"
      "-----------------------------------------------------\n";
  EXPECT_DOUBLE_EQ(figure_of_report(report, 65536, 3), 55.85);
  EXPECT_LT(figure_of_report(report, 4096, 3), 0);
  EXPECT_LT(figure_of_report(report, 65536, 9), 0);
  EXPECT_LT(figure_of_report("Couldn't connect to 10.0.0.1:18515\n", 65536, 3), 0);
}

std::vector<std::string> names(const std::vector<Step>& plan) {
  std::vector<std::string> all;
  for (const Step& step : plan)
    for (const std::string& record : step.records) all.push_back(case_name(record, step.question));
  return all;
}

TEST(Plan, NamesSayWhatIsMeasured) {
  const auto some = names(make_plan({.quick = true}, std::regex("^launch|pinned/64KiB|sessions")));
  EXPECT_THAT(some, ElementsAre("launch", "launch_done", "launch_synchronize",
                                "host_to_device_memcpy_ce/pinned/64KiB",
                                "device_to_host_memcpy_ce/pinned/64KiB", "sessions_call_sync/1",
                                "sessions_call_sync/4", "sessions_call_sync/16"));
}

TEST(Plan, OfAStepOnlyTheWantedRecords) {
  EXPECT_THAT(names(make_plan({}, std::regex("image_load"))),
              ElementsAre("image_load_cold", "image_load_cached"));
  EXPECT_TRUE(make_plan({}, std::regex("no such case")).empty());
}

TEST(Plan, CopiesAreNoLargerThanTheyMayBe) {
  for (const Step& step : make_plan({.largest = 1 << 20}, std::regex("")))
    EXPECT_LE(step.question.bytes, 1U << 20);
}

TEST(Plan, EveryRecordIsExplained) {
  for (const bool quick : {false, true})
    for (const Step& step : make_plan({.quick = quick}, std::regex("")))
      for (const std::string& record : step.records) EXPECT_NE(explain(record), "") << record;
}

TEST(Results, AMedianLiesBetweenThoseOfTheRounds) {
  const Median median = median_of({30, 10, 20, 50, 40, 60});
  EXPECT_EQ(median.value, 35);
  EXPECT_EQ(median.low, 10);
  EXPECT_EQ(median.high, 60);
  EXPECT_DOUBLE_EQ(median.confidence(), 1 - 1.0 / 32);
  EXPECT_EQ(median_of({}).confidence(), 0);
}

TEST(Results, FairnessOfShares) {
  const Fairness fair = fairness_of({{10, 0, 0}, {10, 0, 0}});
  EXPECT_EQ(fair.most_to_least, 1);
  EXPECT_EQ(fair.jain, 1);
  const Fairness unfair = fairness_of({{30, 0, 0}, {10, 0, 0}});
  EXPECT_EQ(unfair.most_to_least, 3);
  EXPECT_DOUBLE_EQ(unfair.jain, 0.8);
  EXPECT_EQ(fairness_of({{5, 0, 0}, {0, 0, 0}}).most_to_least, 0);
}

// A file with one case that took so long in each round.
Json file_of(const std::vector<double>& round_medians, const std::string& way = "shm") {
  Results results;
  results.figures.push_back({"launch", way, "launch", {}, "", {}, round_medians, {}});
  return *parse_json(to_line(to_json(results)), "test");
}

Change::Kind change(const std::vector<double>& before, const std::vector<double>& now) {
  return compare(file_of(before), file_of(now))->changes.at(0).kind;
}

TEST(Compare, SlowerAndFasterBeyondTheNoise) {
  EXPECT_EQ(change({10, 11, 12, 10, 11}, {14, 15, 14, 15, 14}), Change::Kind::kSlower);
  EXPECT_EQ(change({14, 15, 14, 15, 14}, {10, 11, 12, 10, 11}), Change::Kind::kFaster);
}

TEST(Compare, OverlappingRoundsAreNoise) {
  EXPECT_EQ(change({10, 11, 12, 10, 11}, {11.9, 15, 14, 15, 14}), Change::Kind::kSame);
}

TEST(Compare, LessThanFivePercentIsNoChange) {
  EXPECT_EQ(change({100, 101, 100, 101, 100}, {104, 104, 104, 104, 104}), Change::Kind::kSame);
  EXPECT_EQ(change({100, 101, 100, 101, 100}, {106, 106, 106, 106, 106}), Change::Kind::kSlower);
}

TEST(Compare, FewRoundsSayNothing) {
  EXPECT_EQ(change({10, 10, 10, 10}, {90, 90, 90, 90, 90}), Change::Kind::kUnknown);
  EXPECT_FALSE(compare(file_of({10}), file_of({90}))->slower());
}

TEST(Compare, CasesOfOneFileOnlyAreCounted) {
  const auto comparison = compare(file_of({1, 1, 1, 1, 1}), file_of({1, 1, 1, 1, 1}, "tcp"));
  ASSERT_TRUE(comparison.ok());
  EXPECT_TRUE(comparison->changes.empty());
  EXPECT_EQ(comparison->only_before, 1U);
  EXPECT_EQ(comparison->only_now, 1U);
}

TEST(Compare, AnotherMachineIsSaid) {
  Json before = file_of({1}), now = file_of({1});
  before["gpu"] = {{"name", "H100"}};
  now["gpu"] = {{"name", "H200"}};
  EXPECT_THAT(to_text(*compare(before, now)), HasSubstr("gpu name: 'H100' before, 'H200' now"));
}

TEST(Table, RatiosToNativeAndToTheBareLink) {
  Results results;
  const Question none{"call_sync", "", 0, 0, 0};
  results.figures.push_back({"call_sync", "tcp", "call_sync", none, "round_trip", {}, {30000}, {}});
  results.figures.push_back(
      {"call_sync", "native", "call_sync", none, "round_trip", {}, {2000}, {}});
  results.figures.push_back({"round_trip", "bare-tcp", "round_trip", none, "", {}, {20000}, {}});
  const std::string table = make_table(to_json(results));
  EXPECT_THAT(table, HasSubstr("30.00 us"));
  EXPECT_THAT(table, HasSubstr(" 15.00   1.50\n"));
  EXPECT_LT(table.find("native"), table.find("tcp"));
}

// What stands in the page's element of results.
std::string data_of(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="results">)";
  const size_t from = page.find(begin) + begin.size();
  return page.substr(from, page.find("</script>", from) - from);
}

TEST(Page, TextsOfAFileCannotBecomeMarkup) {
  Json results = file_of({1});
  results["date"] = "</script><!--<script>\u2028\xff";
  const std::string data = data_of(make_page(results, Json()));
  EXPECT_EQ(data.find('<'), std::string::npos);
  EXPECT_TRUE(std::all_of(data.begin(), data.end(), [](char one) { return one >= ' '; }));
  const auto read = parse_json(data, "test");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ((*read)["results"]["results"], results["results"]);
  EXPECT_THAT(text_or((*read)["results"], "date", ""), HasSubstr("</script><!--<script>"));
  EXPECT_FALSE(read->contains("changes"));
}

TEST(Page, HasTheChanges) {
  const Json before = file_of({10, 10, 10, 10, 10}), now = file_of({20, 20, 20, 20, 20});
  const auto comparison = compare(before, now);
  ASSERT_TRUE(comparison.ok());
  const auto read = parse_json(data_of(make_page(now, to_json(*comparison))), "test");
  ASSERT_TRUE(read.ok());
  const Json& change = (*read)["changes"]["changes"].at(0);
  EXPECT_EQ(change["kind"], "slower");
  EXPECT_EQ(change["now"], 20);
}

class ResultsFile : public ::testing::Test {
 protected:
  Status read(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return read_results(path_).status();
  }
  ~ResultsFile() override { std::remove(path_.c_str()); }
  const std::string path_ = ::testing::TempDir() + "fargpu_bench_results.json";
};

TEST_F(ResultsFile, ComesAsItWent) {
  const Json json = file_of({1, 2, 3});
  ASSERT_TRUE(write_results(path_, json).ok());
  EXPECT_EQ(*read_results(path_), json);
}

TEST_F(ResultsFile, WhatIsNoneIsRefusedWithItsName) {
  const std::string deep = R"({"fargpu_bench":1,"results":)" + std::string(100'000, '[') +
                           std::string(100'000, ']') + "}";
  for (const std::string& text :
       {std::string(), std::string("{"), deep, std::string("[]"), std::string("{}"),
        std::string(R"({"fargpu_bench":"1"})"), std::string(R"({"fargpu_bench":1})"),
        std::string(R"({"fargpu_bench":1,"results":{}})"), std::string("\xff\xfe\0x", 4)}) {
    const Status status = read(text);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text.substr(0, 40);
    EXPECT_THAT(status.message(), HasSubstr(path_));
  }
  EXPECT_THAT(read(R"({"fargpu_bench":2,"results":[]})").message(), HasSubstr("measure again"));
  EXPECT_FALSE(read_results(path_ + ".none").ok());
}

TEST_F(ResultsFile, ResultsThatMakeNoSenseAreRefused) {
  for (const char* result :
       {"3", "{}", R"({"case":"a","way":"b"})", R"({"case":"a","way":"b","median":"x","rounds":5})",
        R"({"case":"a","way":"b","median":1e999,"rounds":5,"median_interval":[1,2]})",
        R"({"case":"a","way":"b","median":1,"rounds":5,"median_interval":[1]})",
        R"({"case":"a","way":"b","median":1,"rounds":-5,"median_interval":[1,2]})"}) {
    const std::string text = std::string(R"({"fargpu_bench":1,"results":[)") + result + "]}";
    const Status status = read(text);
    if (!status.ok()) continue;  // 1e999 is no number of JSON's
    const auto comparison = compare(*read_results(path_), file_of({1}));
    EXPECT_EQ(comparison.status().code(), StatusCode::kInvalidArgument) << result;
    EXPECT_THAT(comparison.status().message(), HasSubstr("result 0 of the older file"));
    (void)make_table(*read_results(path_));
  }
}

}  // namespace
}  // namespace fargpu::bench
