#include "sim/base/settings.h"

#include <gtest/gtest.h>

#include <map>

namespace fargpu::sim {
namespace {

Result<Settings> read(const std::map<std::string, const char*>& environment) {
  return read_settings([&](const char* name) -> const char* {
    auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second;
  });
}

Settings gpus(int count) {
  Settings settings;
  settings.gpus = count;
  return settings;
}

TEST(SettingsTest, DefaultsAreOneGpuOf4GiBAndCapability90) {
  auto settings = read({});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->gpus, 1);
  EXPECT_EQ(settings->memory_bytes, size_t{4} << 30);
  EXPECT_EQ(settings->compute_capabilities, std::vector<int>{90});
  EXPECT_EQ(settings->visible, std::vector<int>{0});
}

TEST(SettingsTest, ReadsEveryVariable) {
  auto settings = read({{"FARGPU_SIM_GPUS", "3"},
                        {"FARGPU_SIM_MEMORY", "512M"},
                        {"FARGPU_SIM_COMPUTE_CAPABILITY", "8.6"},
                        {"FARGPU_SIM_THREADS", "2"},
                        {"FARGPU_SIM_COMPUTE_MODE", "prohibited"},
                        {"FARGPU_SIM_JITTER", "200"},
                        {"FARGPU_SIM_LOCKED_WAITS", "1"},
                        {"FARGPU_SIM_STREAM_WAITS", "1"},
                        {"FARGPU_SIM_NVML_HANG", "utilization"},
                        {"FARGPU_SIM_WANTED_ADDRESSES", "0"},
                        {"FARGPU_SIM_QUEUE", "10"},
                        {"FARGPU_SIM_SLOT", "31"},
                        {"FARGPU_SIM_SHARED", "/a/file"},
                        {"FARGPU_SIM_CONTEXT_MEMORY", "500M"},
                        {"FARGPU_SIM_CONTEXT_END", "300"},
                        {"FARGPU_SIM_INIT", "70"},
                        {"CUDA_DEVICE_MAX_CONNECTIONS", "16"},
                        {"CUDA_VISIBLE_DEVICES", "2, 0"}});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->gpus, 3);
  EXPECT_EQ(settings->memory_bytes, size_t{512} << 20);
  EXPECT_EQ(settings->compute_capabilities, std::vector<int>{86});
  EXPECT_EQ(settings->threads, 2);
  EXPECT_TRUE(settings->prohibited);
  EXPECT_EQ(settings->jitter_microseconds, 200);
  EXPECT_TRUE(settings->locked_waits);
  EXPECT_TRUE(settings->stream_waits);
  EXPECT_EQ(settings->nvml_hang, Settings::Hang::kUtilization);
  EXPECT_FALSE(settings->wanted_addresses);
  EXPECT_EQ(settings->queue_places, 10);
  EXPECT_EQ(settings->slot, 31);
  EXPECT_EQ(settings->shared, "/a/file");
  EXPECT_EQ(settings->context_bytes, size_t{500} << 20);
  EXPECT_EQ(settings->context_end_milliseconds, 300);
  EXPECT_EQ(settings->init_milliseconds, 70);
  EXPECT_EQ(settings->connections, 16);
  EXPECT_EQ(settings->visible, (std::vector<int>{2, 0}));
}

TEST(SettingsTest, ConnectionsOfADriver) {
  for (const char* wrong : {"0", "33", "many"})
    EXPECT_EQ(read({{"CUDA_DEVICE_MAX_CONNECTIONS", wrong}})->connections, 8) << wrong;
}

TEST(SettingsTest, BadValuesNameTheVariable) {
  for (auto [name, value] :
       std::map<std::string, const char*>{{"FARGPU_SIM_GPUS", "17"},
                                          {"FARGPU_SIM_MEMORY", "much"},
                                          {"FARGPU_SIM_COMPUTE_CAPABILITY", "9"},
                                          {"FARGPU_SIM_THREADS", "-1"},
                                          {"FARGPU_SIM_COMPUTE_MODE", "closed"},
                                          {"FARGPU_SIM_LOCKED_WAITS", "yes"},
                                          {"FARGPU_SIM_STREAM_WAITS", "yes"},
                                          {"FARGPU_SIM_NVML_HANG", "always"},
                                          {"FARGPU_SIM_WANTED_ADDRESSES", "2"},
                                          {"FARGPU_SIM_QUEUE", "0"},
                                          {"FARGPU_SIM_SLOT", "32"},
                                          {"FARGPU_SIM_MIG", "1"},
                                          {"FARGPU_SIM_CONTEXT_MEMORY", "all"},
                                          {"FARGPU_SIM_CONTEXT_END", "300ms"},
                                          {"FARGPU_SIM_INIT", "600001"},
                                          {"FARGPU_SIM_JITTER", "1s"}}) {
    auto settings = read({{name, value}});
    ASSERT_FALSE(settings.ok()) << name;
    EXPECT_NE(settings.status().message().find(name), std::string::npos);
    EXPECT_NE(settings.status().message().find(value), std::string::npos);
  }
  EXPECT_FALSE(read({{"FARGPU_SIM_GPUS", ""}}).ok());
  EXPECT_FALSE(read({{"FARGPU_SIM_MEMORY", "1K"}}).ok());
  EXPECT_FALSE(read({{"FARGPU_SIM_COMPUTE_CAPABILITY", "7.0"}}).ok());
}

TEST(SettingsTest, ACapabilityForEachGpu) {
  const auto capabilities = [](const char* text) {
    const auto settings = read({{"FARGPU_SIM_GPUS", "3"}, {"FARGPU_SIM_COMPUTE_CAPABILITY", text}});
    std::vector<int> all;
    for (int gpu = 0; settings.ok() && gpu < 3; ++gpu)
      all.push_back(settings->compute_capability(gpu));
    return all;
  };
  EXPECT_EQ(capabilities("8.0,9.0, 12.1"), (std::vector<int>{80, 90, 121}));
  EXPECT_EQ(capabilities("8.0,9.0"), (std::vector<int>{80, 90, 90}));
  for (const char* wrong : {"", ",", "8.0,", "8.0,9", "8.0,9.0,9.0,9.0", "8.0 9.0"})
    EXPECT_EQ(capabilities(wrong), std::vector<int>{}) << wrong;
}

TEST(SettingsTest, VisibleDevicesFollowTheRulesOfCuda) {
  const auto visible = [](const char* text) { return parse_visible_devices(text, gpus(4)); };
  EXPECT_EQ(visible("3,1"), (std::vector<int>{3, 1}));
  EXPECT_EQ(visible("0,9,1"), (std::vector<int>{0}));  // ends at the first invalid one
  EXPECT_EQ(visible("-1"), std::vector<int>{});
  EXPECT_EQ(visible(""), std::vector<int>{});
  EXPECT_EQ(visible("1,1"), std::vector<int>{});
  EXPECT_EQ(visible("none"), std::vector<int>{});
}

TEST(SettingsTest, VisibleDevicesByUuid) {
  const std::string second = uuid_text(device_uuid(90, 2));
  EXPECT_EQ(second, "GPU-66617267-7075-2d73-696d-000000005a02");
  EXPECT_EQ(parse_visible_devices(second, gpus(4)), std::vector<int>{2});
  EXPECT_EQ(parse_visible_devices("GPU-6661", gpus(1)),
            std::vector<int>{0});  // a prefix, when it is unique
  EXPECT_EQ(parse_visible_devices("GPU-6661", gpus(2)), std::vector<int>{});
  Settings others = gpus(4);
  others.compute_capabilities = {90, 80};
  EXPECT_EQ(parse_visible_devices(second, others), std::vector<int>{});
  EXPECT_EQ(parse_visible_devices(uuid_text(device_uuid(80, 2)), others), std::vector<int>{2});
}

TEST(SettingsTest, OneInstanceOfDividedGpusIsVisible) {
  const std::map<std::string, const char*> divided{
      {"FARGPU_SIM_GPUS", "2"}, {"FARGPU_SIM_MIG", "3"}, {"FARGPU_SIM_MEMORY", "8G"}};
  const auto settings = read(divided);
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->visible, std::vector<int>{unit_of(0, 0)});
  EXPECT_EQ(settings->unit_bytes(), size_t{2730} << 20);
  EXPECT_EQ(device_name(*settings, 0), "fargpu simulated GPU (sm_90) MIG 1g.2gb");
  EXPECT_EQ(gpu_of(unit_of(1, 2)), 1);
  EXPECT_EQ(instance_of(unit_of(1, 2)), 2);
  EXPECT_EQ(instance_of(1), -1);
  const std::string last = uuid_text(device_uuid(90, unit_of(1, 2)));
  EXPECT_EQ(last, "MIG-66617267-7075-2d73-696d-000000035a01");
  const auto visible = [&](const std::string& text) {
    return parse_visible_devices(text, *settings);
  };
  EXPECT_EQ(visible(last), std::vector<int>{unit_of(1, 2)});
  EXPECT_EQ(visible(last + ",0"), std::vector<int>{unit_of(1, 2)});
  EXPECT_EQ(visible("1,0"), std::vector<int>{unit_of(1, 0)});
  EXPECT_EQ(visible(uuid_text(device_uuid(90, 1))), std::vector<int>{unit_of(1, 0)});
  EXPECT_EQ(visible("MIG-6661"), std::vector<int>{});  // of several
  EXPECT_EQ(parse_visible_devices(last, gpus(2)), std::vector<int>{});
}

}  // namespace
}  // namespace fargpu::sim
