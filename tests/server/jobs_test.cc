#include "server/job/jobs.h"

#include <gtest/gtest.h>

#include <set>

#include "server/placement/host_placement.h"

namespace fargpu::server {
namespace {

using bootstrap::JobTicket;
using bootstrap::SessionKey;
using Indices = std::vector<size_t>;
using std::chrono::seconds;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr Jobs::Time kStart{};

SessionKey key(int number) {
  SessionKey key{};
  key[0] = static_cast<std::byte>(number);
  return key;
}

JobRequest wish(uint32_t gpus = 0, uint64_t memory = 0, std::vector<std::string> devices = {}) {
  return {{gpus, memory, std::move(devices)}, "host:1 program", "10.0.0.1:1", {}};
}

class JobsTest : public ::testing::Test {
 protected:
  explicit JobsTest(PlacementLimits limits = {.max_sessions = 8, .max_sessions_per_gpu = 4},
                    uint32_t of_tenant = 0)
      : host_({{"GPU-aaaa1111", "first", 8 * kGiB, {}}, {"GPU-bbbb2222", "second", 8 * kGiB, {}}},
              limits),
        jobs_(host_, ids_, {limits.max_sessions, seconds(30), 0, 0, of_tenant},
              [this](const Job& job, Jobs::Change change, const char*) {
                if (change == Jobs::Change::kEnded) ended_.push_back(job.id);
                if (change == Jobs::Change::kMoved) moved_.push_back(job.id);
              }) {}

  uint64_t open(const JobRequest& request, int number = 7) {
    auto job = jobs_.open(key(number), request, kStart);
    EXPECT_TRUE(job.ok()) << job.status().message();
    return job.ok() ? *job : 0;
  }
  Jobs::Seat enter(const std::optional<JobTicket>& ticket, const JobRequest& request = wish(),
                   Jobs::Time now = kStart) {
    auto seat = jobs_.enter(ticket, request, now);
    EXPECT_TRUE(seat.ok()) << seat.status().message();
    return seat.ok() ? *seat : Jobs::Seat{};
  }
  StatusCode refusal(const std::optional<JobTicket>& ticket, const JobRequest& request = wish(),
                     Jobs::Time now = kStart) {
    return jobs_.enter(ticket, request, now).status().code();
  }
  uint64_t look_at(const std::optional<JobTicket>& ticket, const JobRequest& request = wish()) {
    auto job = jobs_.look_at(ticket, request, kStart);
    EXPECT_TRUE(job.ok()) << job.status().message();
    return job.ok() ? *job : 0;
  }
  const Indices& gpus(uint64_t job) { return jobs_.find(job)->grant.units; }

  HostPlacement host_;
  IdSequence ids_{[] { return uint64_t{1} << 40; }};
  std::vector<uint64_t> ended_, moved_;
  Jobs jobs_;
};

TEST(IdSequence, IsALifeAndACounter) {
  IdSequence ids([] { return 0x7f3a0c5d1e2fffff; });
  EXPECT_EQ(id_text(ids.next()), "7f3a0c5d1e2-1");
  EXPECT_EQ(ids.next(), 0x7f3a0c5d1e200002u);
}

TEST(IdSequence, DrawsAnotherLifeBeforeItRepeatsItself) {
  uint64_t drawn = 0;
  IdSequence ids([&drawn] { return ++drawn << kIdCounterBits; });
  constexpr uint64_t kMany = (uint64_t{3} << kIdCounterBits) - 10;
  uint64_t last = 0;
  for (uint64_t i = 0; i < kMany; ++i) {
    const uint64_t id = ids.next();
    ASSERT_GT(id, last);
    last = id;
  }
  EXPECT_EQ(drawn, 3u);
}

TEST(IdSequence, TwoDaemonsGiveDifferentIds) {
  std::set<uint64_t> seen;
  for (int daemon = 0; daemon < 1000; ++daemon) {
    IdSequence ids;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(seen.insert(ids.next()).second);
  }
  EXPECT_FALSE(seen.contains(0));
}

TEST_F(JobsTest, AllSessionsOfAJobHaveItsGpusInItsOrder) {
  const uint64_t job = open(wish(2, 0, {"1", "0"}));
  const JobTicket ticket{job, key(7)};
  const Jobs::Seat first = enter(ticket), second = enter(ticket, wish(2, 0, {"1", "0"}));
  EXPECT_EQ(first.job, job);
  EXPECT_EQ(second.job, job);
  EXPECT_NE(first.slot, second.slot);
  EXPECT_EQ(gpus(job), (Indices{1, 0}));
  EXPECT_EQ(host_.load(0).jobs, 1u);
  EXPECT_EQ(jobs_.sessions(), 2u);
}

TEST_F(JobsTest, AHeldJobLivesWithoutSessionsAndEndsWhenItIsLetGo) {
  const uint64_t job = open(wish());
  jobs_.leave(enter(JobTicket{job, key(7)}), kStart);
  jobs_.expire(kStart + seconds(100000));
  EXPECT_FALSE(jobs_.next_end().has_value());
  ASSERT_NE(jobs_.find(job), nullptr);
  jobs_.release(job);
  EXPECT_EQ(ended_, std::vector{job});
  EXPECT_EQ(host_.load(0).jobs, 0u);
}

TEST_F(JobsTest, SessionsOutliveTheConnectionThatHeldTheirJob) {
  const uint64_t job = open(wish(0, kGiB));
  const JobTicket ticket{job, key(7)};
  const Jobs::Seat first = enter(ticket);
  jobs_.release(job);
  EXPECT_TRUE(ended_.empty());
  const Jobs::Seat second = enter(ticket);  // what was detached may still start processes
  jobs_.leave(first, kStart);
  EXPECT_EQ(host_.load(0).reserved_bytes, kGiB);
  jobs_.leave(second, kStart);
  EXPECT_EQ(ended_, std::vector{job});
  EXPECT_EQ(host_.load(0).reserved_bytes, 0u);
  EXPECT_EQ(refusal(ticket), StatusCode::kNotFound);
}

TEST_F(JobsTest, AWrongTicketIsRefusedAndPlacesNothing) {
  const uint64_t job = open(wish());
  const Jobs::Seat shared = enter(JobTicket{0, key(9)});
  for (const JobTicket& ticket :
       {JobTicket{job, key(8)}, JobTicket{job + 50, key(7)}, JobTicket{job, SessionKey{}},
        JobTicket{shared.job, key(9)}, JobTicket{~uint64_t{0}, key(7)}}) {
    EXPECT_EQ(refusal(ticket), StatusCode::kNotFound);
  }
  EXPECT_EQ(jobs_.all().size(), 2u);
  EXPECT_EQ(jobs_.sessions(), 1u);
}

TEST_F(JobsTest, TheKeyOfAnOpenedJobWithoutItsIdIsAnotherJob) {
  const uint64_t job = open(wish());
  EXPECT_NE(enter(JobTicket{0, key(7)}).job, job);
  // Nor does a lone session's empty key open anything.
  const Jobs::Seat lone = enter(std::nullopt);
  EXPECT_EQ(refusal(JobTicket{lone.job, SessionKey{}}), StatusCode::kNotFound);
}

TEST_F(JobsTest, ALoneSessionIsAJobThatEndsWithIt) {
  const Jobs::Seat one = enter(std::nullopt), two = enter(std::nullopt);
  EXPECT_NE(one.job, two.job);
  EXPECT_EQ(gpus(one.job), Indices{0});
  EXPECT_EQ(gpus(two.job), Indices{1});
  jobs_.leave(one, kStart);
  EXPECT_EQ(ended_, std::vector{one.job});
}

TEST_F(JobsTest, AJobOfTheClientsOwnWaitsForFurtherSessions) {
  const JobTicket ticket{0, key(3)};
  EXPECT_FALSE(jobs_.knows(ticket));
  const Jobs::Seat first = enter(ticket);
  EXPECT_TRUE(jobs_.knows(ticket));
  jobs_.leave(first, kStart + seconds(10));
  EXPECT_EQ(jobs_.next_end(), kStart + seconds(40));
  jobs_.expire(kStart + seconds(39));
  const Jobs::Seat second = enter(ticket, wish(), kStart + seconds(39));
  EXPECT_EQ(second.job, first.job);
  EXPECT_FALSE(jobs_.next_end().has_value());
  jobs_.leave(second, kStart + seconds(50));
  jobs_.expire(kStart + seconds(80));
  EXPECT_EQ(ended_, std::vector{first.job});
  // Later the same ticket makes a new job.
  EXPECT_NE(enter(ticket).job, first.job);
}

TEST_F(JobsTest, AJobInItsGraceTimeGivesWay) {
  const Jobs::Seat early = enter(JobTicket{0, key(1)}, wish(1, 6 * kGiB, {"0"}));
  const Jobs::Seat late = enter(JobTicket{0, key(2)}, wish(1, 6 * kGiB, {"1"}));
  jobs_.leave(early, kStart);
  jobs_.leave(late, kStart + seconds(1));
  // Two GiB are free on each: nobody is in the way.
  enter(std::nullopt, wish(2, 2 * kGiB));
  EXPECT_TRUE(ended_.empty());
  // More can never be free: nobody is sent away in vain.
  EXPECT_EQ(refusal(std::nullopt, wish(1, 7 * kGiB)), StatusCode::kNoCapacity);
  EXPECT_TRUE(ended_.empty());
  enter(std::nullopt, wish(1, 4 * kGiB));
  EXPECT_EQ(ended_, std::vector{early.job});
}

TEST_F(JobsTest, AJobWithSessionsOrAHolderDoesNotGiveWay) {
  open(wish(1, 6 * kGiB, {"0"}));
  enter(JobTicket{0, key(2)}, wish(1, 6 * kGiB, {"1"}));
  EXPECT_EQ(refusal(std::nullopt, wish(1, 4 * kGiB)), StatusCode::kNoCapacity);
  EXPECT_TRUE(ended_.empty());
}

TEST_F(JobsTest, ASessionThatAsksForSomethingElseThanItsJobHasIsRefused) {
  const uint64_t job = open(wish(1, kGiB, {"1"}));
  const JobTicket ticket{job, key(7)};
  for (const JobRequest& other :
       {wish(2), wish(1, 2 * kGiB), wish(1, 0, {"0"}), wish(1, 0, {"1", "0"})}) {
    EXPECT_EQ(refusal(ticket, other), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(jobs_.sessions(), 0u);
  enter(ticket, wish(1, kGiB, {"1"}));
  // What the server gave to a job that asked for nothing is no other wish.
  enter(JobTicket{open(wish(), 8), key(8)}, wish(1));
}

TEST_F(JobsTest, TheServersUsualMemoryIsTheJobs) {
  Jobs jobs(host_, ids_, {8, seconds(30), kGiB, 4 * kGiB});
  const uint64_t job = jobs.open(key(7), wish(), kStart).value();
  EXPECT_TRUE(jobs.enter(JobTicket{job, key(7)}, wish(), kStart).ok());
  EXPECT_TRUE(jobs.enter(JobTicket{job, key(7)}, wish(), kStart).ok());
  EXPECT_EQ(jobs.find(job)->grant.memory_bytes, kGiB);
  EXPECT_EQ(host_.load(0).reserved_bytes, kGiB);
}

TEST_F(JobsTest, NoJobHasMoreThanTheMostMemory) {
  Jobs jobs(host_, ids_, {8, seconds(30), 0, 4 * kGiB});
  EXPECT_TRUE(jobs.open(key(1), wish(1, 4 * kGiB), kStart).ok());
  const uint64_t without = jobs.open(key(2), wish(), kStart).value();
  EXPECT_EQ(jobs.find(without)->grant.memory_bytes, 4 * kGiB);
  const Status refused = jobs.enter(std::nullopt, wish(1, 4 * kGiB + 1), kStart).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("a job may have 4.0 GiB here"), std::string::npos)
      << refused.message();
}

TEST_F(JobsTest, SlotsAreGivenOutAgain) {
  const JobTicket ticket{open(wish()), key(7)};
  const Jobs::Seat a = enter(ticket), b = enter(ticket), c = enter(ticket);
  EXPECT_EQ(std::vector({a.slot, b.slot, c.slot}), (std::vector<uint32_t>{0, 1, 2}));
  jobs_.leave(b, kStart);
  jobs_.leave(b, kStart);  // twice is once
  EXPECT_EQ(jobs_.sessions(), 2u);
  EXPECT_EQ(enter(ticket).slot, 1u);
}

TEST_F(JobsTest, LeavingGivesBackWhatTheSessionsSlotHeld) {
  const JobTicket ticket{open(wish(1, kGiB)), key(7)};
  const Jobs::Seat a = enter(ticket), b = enter(ticket);
  Job& job = *jobs_.find(a.job);
  auto memory = JobMemory::create({1, 8, job.grant.memory_bytes});
  ASSERT_TRUE(memory.ok());
  job.memory = std::move(*memory);
  job.memory->take(a.slot);
  job.memory->take(b.slot);
  ASSERT_TRUE(job.memory->charge(0, 600));  // as slot 0, which is a's
  jobs_.leave(b, kStart);
  EXPECT_EQ(job.memory->used(0), 600u);
  jobs_.leave(a, kStart);
  EXPECT_EQ(job.memory->used(0), 0u);
}

TEST_F(JobsTest, AManagementSessionTakesNoSeatAndDoesNotHoldAnOpenedJob) {
  const JobTicket ticket{open(wish(2)), key(7)};
  ASSERT_EQ(jobs_.look_at(ticket, wish(), kStart).value(), ticket.id);
  EXPECT_EQ(jobs_.sessions(), 0u);
  EXPECT_EQ(enter(ticket).slot, 0u);
  jobs_.leave({ticket.id, 0}, kStart);
  EXPECT_TRUE(ended_.empty());
  jobs_.release(ticket.id);
  EXPECT_EQ(ended_, std::vector{ticket.id});
  jobs_.look_away(ticket.id, kStart);
  EXPECT_EQ(ended_.size(), 1u);
}

TEST_F(JobsTest, AJobThatIsOnlyLookedAtReservesNothing) {
  const JobTicket ticket{0, key(3)};
  const uint64_t job = look_at(ticket, wish(1, 6 * kGiB));
  EXPECT_EQ(gpus(job), Indices{0});
  EXPECT_EQ(jobs_.find(job)->grant.memory_bytes, 6 * kGiB);
  EXPECT_EQ(host_.load(0).jobs, 0u);
  EXPECT_EQ(host_.load(0).reserved_bytes, 0u);
  EXPECT_EQ(host_.jobs(), 0u);
  EXPECT_FALSE(jobs_.knows(ticket));
  // It becomes a job with its first session, and does not change for those who look.
  EXPECT_EQ(enter(ticket, wish(1, 6 * kGiB)).job, job);
  EXPECT_TRUE(jobs_.knows(ticket));
  EXPECT_EQ(host_.load(0).reserved_bytes, 6 * kGiB);
  EXPECT_TRUE(moved_.empty());
}

TEST_F(JobsTest, AViewEndsWithItsLastObserver) {
  const JobTicket ticket{0, key(3)};
  const uint64_t job = look_at(ticket);
  EXPECT_EQ(look_at(ticket), job);
  jobs_.look_away(job, kStart);
  EXPECT_TRUE(ended_.empty());
  jobs_.look_away(job, kStart);
  EXPECT_EQ(ended_, std::vector{job});
  EXPECT_NE(look_at(std::nullopt), look_at(std::nullopt));
}

TEST_F(JobsTest, AViewGetsWhatItShowsUnlessAnotherJobHasIt) {
  const JobTicket ticket{0, key(3)};
  const uint64_t job = look_at(ticket, wish(1, 6 * kGiB));
  enter(std::nullopt, wish(1, 6 * kGiB, {"0"}));
  enter(ticket);
  EXPECT_EQ(gpus(job), Indices{1});
  EXPECT_EQ(moved_, std::vector{job});
  // One that has named its GPUs gets no other.
  const JobTicket named{0, key(4)};
  look_at(named, wish(1, 6 * kGiB, {"0"}));
  EXPECT_EQ(refusal(named), StatusCode::kNoCapacity);
  EXPECT_EQ(host_.jobs(), 2u);
}

TEST_F(JobsTest, AViewOfAFullHostShowsWhatThereIs) {
  enter(std::nullopt, wish(1, 8 * kGiB, {"0"}));
  EXPECT_EQ(gpus(look_at(std::nullopt, wish(1, 8 * kGiB))), Indices{1});
  enter(std::nullopt, wish(1, 8 * kGiB, {"1"}));
  EXPECT_EQ(gpus(look_at(std::nullopt, wish(1, 8 * kGiB))), Indices{0});
  EXPECT_EQ(gpus(look_at(std::nullopt, wish(1, kGiB, {"1"}))), Indices{1});
  EXPECT_EQ(jobs_.look_at(std::nullopt, wish(1, 9 * kGiB), kStart).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(jobs_.look_at(std::nullopt, wish(3), kStart).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(JobsTest, AManagementSessionKeepsNoGpuBeyondTheGraceTime) {
  const JobTicket ticket{0, key(3)};
  const uint64_t job = look_at(ticket, wish(0, kGiB));
  jobs_.leave(enter(ticket), kStart);
  jobs_.look_away(look_at(ticket), kStart + seconds(5));
  EXPECT_EQ(jobs_.next_end(), kStart + seconds(30));
  jobs_.expire(kStart + seconds(30));
  EXPECT_EQ(host_.load(0).jobs, 0u);
  EXPECT_TRUE(ended_.empty());
  EXPECT_FALSE(jobs_.next_end().has_value());
  EXPECT_EQ(enter(ticket, wish(), kStart + seconds(60)).job, job);
  EXPECT_EQ(host_.load(0).reserved_bytes, kGiB);
}

TEST_F(JobsTest, NoJobTakesAllManagementSessions) {
  const JobTicket greedy{0, key(1)}, other{0, key(2)};
  for (int i = 0; i < 4; ++i) look_at(greedy);
  const auto fifth = jobs_.look_at(greedy, wish(), kStart);
  EXPECT_EQ(fifth.status().code(), StatusCode::kNoCapacity);
  EXPECT_NE(fifth.status().message().find("nvmlShutdown"), std::string::npos);
  const uint64_t job = look_at(other);
  look_at(other);
  EXPECT_EQ(jobs_.look_at(other, wish(), kStart).status().code(), StatusCode::kNoCapacity);
  look_at(std::nullopt);
  jobs_.look_away(job, kStart);
  look_at(other);
}

class LimitedJobsTest : public JobsTest {
 protected:
  LimitedJobsTest() : JobsTest({.max_sessions = 3, .max_sessions_per_gpu = 1}) {}
};

TEST_F(LimitedJobsTest, AJobCountsOnceOnAGpuAndItsSessionsOnTheHost) {
  const JobTicket ticket{open(wish(2)), key(7)};
  for (int i = 0; i < 3; ++i) enter(ticket);
  EXPECT_EQ(refusal(ticket), StatusCode::kNoCapacity);
  jobs_.leave({ticket.id, 1}, kStart);
  EXPECT_EQ(refusal(std::nullopt), StatusCode::kNoCapacity);  // the GPUs are the job's
  enter(ticket);
}

class TenantsTest : public JobsTest {
 protected:
  TenantsTest() : JobsTest({.max_sessions = 8, .max_sessions_per_gpu = 8}, 3) {}
  static JobRequest of(const char* tenant) {
    JobRequest request = wish();
    request.tenant = {tenant};
    return request;
  }
};

TEST_F(TenantsTest, JobsWithoutASessionAndManagementSessionsCount) {
  const uint64_t first = open(of("a"), 1);
  (void)open(of("a"), 2);
  const uint64_t looked_at = look_at(std::nullopt, of("a"));
  EXPECT_EQ(jobs_.open(key(3), of("a"), kStart).status().code(), StatusCode::kNoCapacity);
  EXPECT_EQ(jobs_.look_at(std::nullopt, of("a"), kStart).status().code(), StatusCode::kNoCapacity);
  EXPECT_EQ(refusal(std::nullopt, of("a")), StatusCode::kNoCapacity);
  // A job's first session has its place, a second one has none.
  const JobTicket ticket{first, key(1)};
  (void)enter(ticket, of("a"));
  EXPECT_EQ(refusal(ticket, of("a")), StatusCode::kNoCapacity);
  // Who shows the key of another one's job has a place of that one.
  EXPECT_EQ(refusal(ticket, of("b")), StatusCode::kNoCapacity);
  (void)enter(std::nullopt, of("b"));
  jobs_.look_away(looked_at, kStart);
  (void)enter(ticket, of("a"));
}

TEST_F(TenantsTest, TheTenantsJobsInTheirGraceTimeGiveWay) {
  for (const int number : {1, 2, 3})
    jobs_.leave(enter(JobTicket{0, key(number)}, of("a"), kStart + seconds(number)),
                kStart + seconds(number));
  jobs_.leave(enter(JobTicket{0, key(4)}, of("b")), kStart);
  (void)enter(std::nullopt, of("a"));
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(refusal(JobTicket{0, key(2)}, of("a")), StatusCode::kOk);
  EXPECT_EQ(refusal(JobTicket{0, key(3)}, of("a")), StatusCode::kOk);
  EXPECT_EQ(refusal(std::nullopt, of("a")), StatusCode::kNoCapacity);
}

}  // namespace
}  // namespace fargpu::server
