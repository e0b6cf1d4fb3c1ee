#include "client/bench/figures/exchange.h"

namespace fargpu::bench {

namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 40, kMostAtOnce = 4096;

Result<Histogram> read_histogram(const Json& json) {
  const Status wrong(StatusCode::kInvalidArgument, "'times' is not a list of [time, count]");
  if (!json.is_array()) return wrong;
  Histogram histogram;
  for (const Json& pair : json) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() ||
        !pair[1].is_number_unsigned())
      return wrong;
    histogram.add(pair[0].get<uint64_t>(), pair[1].get<uint64_t>());
  }
  return histogram;
}

Result<Share> read_share(const Json& json) {
  Share share;
  FARGPU_ASSIGN_OR_RETURN(share.count, read_count(json, "count"));
  FARGPU_ASSIGN_OR_RETURN(share.median, read_count(json, "p50"));
  FARGPU_ASSIGN_OR_RETURN(share.p99, read_count(json, "p99"));
  return share;
}

Result<Record> read_record(const Json& json) {
  Record record;
  FARGPU_ASSIGN_OR_RETURN(record.name, read_text(json, "name"));
  FARGPU_ASSIGN_OR_RETURN(record.times, read_histogram(member(json, "times")));
  for (const Json& one : member(json, "shares")) {
    FARGPU_ASSIGN_OR_RETURN(const Share share, read_share(one));
    record.shares.push_back(share);
  }
  return record;
}

}  // namespace

Json to_json(const Question& question) {
  return {{"name", question.name},
          {"memory", question.memory},
          {"bytes", question.bytes},
          {"count", question.count},
          {"seconds", question.seconds}};
}

Json to_json(const Histogram& histogram) {
  Json pairs = Json::array();
  const auto buckets = histogram.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    // The ends are known exactly.
    const uint64_t time = i == 0                    ? histogram.smallest()
                          : i + 1 == buckets.size() ? histogram.largest()
                                                    : buckets[i].first;
    pairs.push_back({time, buckets[i].second});
  }
  return pairs;
}

Json to_json(const std::vector<Share>& shares) {
  Json list = Json::array();
  for (const Share& share : shares)
    list.push_back({{"count", share.count}, {"p50", share.median}, {"p99", share.p99}});
  return list;
}

Json to_json(const Answer& answer) {
  if (!answer.skipped.empty()) return {{"skipped", answer.skipped}};
  Json records = Json::array();
  for (const Record& record : answer.records) {
    records.push_back({{"name", record.name},
                       {"times", to_json(record.times)},
                       {"shares", to_json(record.shares)}});
  }
  return {{"records", std::move(records)}};
}

Result<Question> read_question(const Json& json) {
  Question question;
  FARGPU_ASSIGN_OR_RETURN(question.name, read_text(json, "name"));
  FARGPU_ASSIGN_OR_RETURN(question.memory, read_text(json, "memory"));
  FARGPU_ASSIGN_OR_RETURN(question.bytes, read_count(json, "bytes", kMostBytes));
  FARGPU_ASSIGN_OR_RETURN(const uint64_t count, read_count(json, "count", kMostAtOnce));
  question.count = static_cast<unsigned>(count);
  FARGPU_ASSIGN_OR_RETURN(question.seconds, read_number(json, "seconds"));
  return question;
}

Result<Answer> read_answer(const Json& json) {
  Answer answer;
  answer.skipped = text_or(json, "skipped", "");
  if (!answer.skipped.empty()) return answer;
  const Json& records = member(json, "records");
  if (!records.is_array()) return Status(StatusCode::kInvalidArgument, "'records' is not a list");
  for (const Json& one : records) {
    FARGPU_ASSIGN_OR_RETURN(Record record, read_record(one));
    answer.records.push_back(std::move(record));
  }
  return answer;
}

}  // namespace fargpu::bench
