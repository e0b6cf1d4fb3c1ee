// GPUs out of service and back, with real probes on a driver that hangs or fails.
#include "server/job/unit_health.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "server/handover/inventory.h"
#include "server/launch/child_launcher.h"
#include "server/placement/host_placement.h"
#include "tests/server/run_until.h"

namespace fargpu::server {
namespace {

class UnitHealthTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/fargpu-health-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    const Grant::Environment usual = {{"FARGPU_SIM_GPUS", "1"},
                                      {"FARGPU_TEST_DRIVER_FOLDER", folder_}};
    auto inventory = probe(launcher_, FARGPU_WORKER, FARGPU_SLOW_DRIVER, usual);
    ASSERT_TRUE(inventory.ok()) << inventory.status().message();
    placement_.emplace(inventory->units, PlacementLimits{});
    health_.emplace(loop_, launcher_,
                    UnitHealth::Rules{FARGPU_WORKER, FARGPU_SLOW_DRIVER, usual,
                                      std::chrono::seconds(2), std::chrono::milliseconds(100)},
                    *placement_,
                    [this](size_t, const std::string& why) { changes_.push_back(why); });
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void set(const char* what) { std::ofstream(folder_ + "/" + what) << ""; }
  void clear(const char* what) { std::filesystem::remove(folder_ + "/" + what); }
  // Runs the loop until there are so many changes.
  bool changes(size_t count) {
    return run_until(loop_, std::chrono::seconds(60), [&] { return changes_.size() >= count; });
  }
  void wait(std::chrono::milliseconds time) {
    run_until(loop_, time, [] { return false; });
  }

  std::string folder_;
  ChildLauncher launcher_;
  boost::asio::io_context loop_;
  std::optional<HostPlacement> placement_;
  std::vector<std::string> changes_;
  std::optional<UnitHealth> health_;
};

TEST_F(UnitHealthTest, ASuspicionAloneChangesNothing) {
  health_->suspect(0);
  wait(std::chrono::seconds(2));
  EXPECT_TRUE(changes_.empty()) << changes_[0];
}

TEST_F(UnitHealthTest, AGpuThatFailsIsOutUntilAProbeSucceeds) {
  set("fail");
  health_->suspect(0);
  ASSERT_TRUE(changes(1));
  EXPECT_NE(changes_[0].find("CUDA_ERROR_SYSTEM_NOT_READY"), std::string::npos) << changes_[0];
  wait(std::chrono::seconds(1));
  EXPECT_EQ(changes_.size(), 1u) << "more probes have failed, and that is no news";
  clear("fail");
  ASSERT_TRUE(changes(2));
  EXPECT_EQ(changes_[1], "");
}

TEST_F(UnitHealthTest, AGpuWhoseDriverHangsIsOutUntilAProbeSucceeds) {
  set("hold");
  health_->suspect(0);
  ASSERT_TRUE(changes(1));
  EXPECT_EQ(changes_[0], "its driver does not open within 2 s");
  clear("hold");
  ASSERT_TRUE(changes(2));
  EXPECT_EQ(changes_[1], "");
}

TEST_F(UnitHealthTest, AGpuIsTakenOutAtOnceAndProbed) {
  health_->take_out(0, "a worker hangs");
  ASSERT_EQ(changes_, std::vector<std::string>{"a worker hangs"});
  ASSERT_TRUE(changes(2));
  EXPECT_EQ(changes_[1], "");
}

}  // namespace
}  // namespace fargpu::server
