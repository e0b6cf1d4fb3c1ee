#include "client/settings/settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <utility>

#include "client/settings/fetch_mode.h"
#include "client/settings/identities.h"

namespace fargpu::client {
namespace {

std::vector<std::string> three() {
  Uuid a{}, b{}, c{};
  a[0] = 0x12;
  b[0] = 0x12;
  b[1] = 0xab;
  c[0] = 0xff;
  return {uuid_text(a), uuid_text(b), uuid_text(c)};
}

TEST(VisibleDevices, Indices) {
  EXPECT_EQ(visible_ordinals(std::nullopt, three()), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(visible_ordinals("2,0", three()), (std::vector<int>{2, 0}));
  EXPECT_EQ(visible_ordinals(" 1 , 2 ", three()), (std::vector<int>{1, 2}));
  EXPECT_TRUE(visible_ordinals("", three()).empty());
  EXPECT_TRUE(visible_ordinals("-1", three()).empty());
}

TEST(VisibleDevices, TheFirstWrongEntryEndsTheList) {
  EXPECT_EQ(visible_ordinals("0,7,1", three()), (std::vector<int>{0}));
  EXPECT_EQ(visible_ordinals("0,,1", three()), (std::vector<int>{0}));
  EXPECT_TRUE(visible_ordinals("99999999999999999999", three()).empty());
}

TEST(VisibleDevices, ARepeatedDeviceLeavesNone) {
  EXPECT_TRUE(visible_ordinals("1,1", three()).empty());
  EXPECT_TRUE(visible_ordinals("0,GPU-12ab,1", three()).empty());
  EXPECT_EQ(visible_ordinals("0,7,0", three()), (std::vector<int>{0}));
}

TEST(VisibleDevices, UuidPrefixes) {
  EXPECT_EQ(three()[1], "GPU-12ab0000-0000-0000-0000-000000000000");
  EXPECT_EQ(visible_ordinals("GPU-12ab", three()), (std::vector<int>{1}));
  EXPECT_EQ(visible_ordinals("GPU-FF,GPU-12ab", three()), (std::vector<int>{2, 1}));
  EXPECT_TRUE(visible_ordinals("GPU-12", three()).empty()) << "ambiguous";
  EXPECT_TRUE(visible_ordinals("MIG-12ab", three()).empty());
  EXPECT_EQ(visible_ordinals("MIG-12AB", {"GPU-12ab", "MIG-12ab"}), (std::vector<int>{1}));
}

class Environment : public testing::Test {
 protected:
  void set(const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);
    names_.push_back(name);
  }
  ~Environment() override {
    for (const char* name : names_) ::unsetenv(name);
  }
  std::vector<const char*> names_;
};

TEST_F(Environment, Compression) {
  EXPECT_EQ(read_settings()->compression, wire::Compression::kAuto);
  set("FARGPU_COMPRESS", "none");
  EXPECT_EQ(read_settings()->compression, wire::Compression::kNone);
  set("FARGPU_COMPRESS", "gzip");
  EXPECT_NE(read_settings().status().message().find("FARGPU_COMPRESS: 'gzip'"), std::string::npos);
}

TEST_F(Environment, Values) {
  set("FARGPU_SERVER", "gpu1:14900");
  set("FARGPU_GPUS", "2");
  set("FARGPU_MEMORY", "8G");
  set("FARGPU_DEVICES", "GPU-12, 3");
  set("FARGPU_CONNECT_TIMEOUT", "500ms");
  const auto settings = read_settings();
  ASSERT_TRUE(settings.ok()) << settings.status().message();
  EXPECT_EQ(settings->server, "gpu1:14900");
  EXPECT_EQ(settings->gpus, 2u);
  EXPECT_EQ(settings->memory_bytes, 8ull << 30);
  EXPECT_EQ(settings->devices, (std::vector<std::string>{"GPU-12", "3"}));
  EXPECT_EQ(settings->connect_timeout, std::chrono::milliseconds(500));
  EXPECT_FALSE(settings->sync_all);
}

TEST_F(Environment, WrongValuesNameTheVariable) {
  set("FARGPU_MEMORY", "lots");
  const auto settings = read_settings();
  ASSERT_FALSE(settings.ok());
  EXPECT_NE(settings.status().message().find("FARGPU_MEMORY"), std::string::npos);
}

TEST_F(Environment, ValuesThatAreNoneAreErrors) {
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, const char*>>{
           {"FARGPU_GPUS", "0"},
           {"FARGPU_GPUS", "1025"},
           {"FARGPU_MEMORY", "0"},
           {"FARGPU_COPY_THREADS", "0"},
           {"FARGPU_COPY_THREADS", "100"},
           {"FARGPU_COPY_THREADS", "abc"},
           {"FARGPU_TRACE_RECORDS", "0"},
           {"FARGPU_REPORT_WHERE", "maybe"},
           {"FARGPU_TCP_CONNECTIONS", "17"},
           {"FARGPU_ZERO_COPY", "maybe"},
           {"FARGPU_SYNC", "2"},
           {"FARGPU_SPIN", "long"},
           {"FARGPU_WATCHDOG", "soon"},
           {"FARGPU_CONNECT_TIMEOUT", "never"},
           {"FARGPU_MAPPED", "no"},
           {"FARGPU_MANAGED", "no"}}) {
    set(name, value);
    const auto settings = read_settings();
    ::unsetenv(name);
    EXPECT_FALSE(settings.ok()) << name << "=" << value;
    EXPECT_NE(settings.status().message().find(name), std::string::npos)
        << settings.status().message();
  }
}

TEST_F(Environment, EmulatedLink) {
  EXPECT_FALSE(read_settings()->link.has_value());
  set("FARGPU_LINK", "rtt=20us,bandwidth=100Gbps");
  const auto settings = read_settings();
  ASSERT_TRUE(settings.ok()) << settings.status().message();
  ASSERT_TRUE(settings->link.has_value());
  EXPECT_EQ(settings->link->rtt, std::chrono::microseconds(20));
  set("FARGPU_LINK", "20us");
  const auto wrong = read_settings();
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("FARGPU_LINK"), std::string::npos);
}

TEST_F(Environment, TokenFromAFile) {
  const std::string path = testing::TempDir() + "/client_token-" + std::to_string(::getpid());
  std::ofstream(path) << "secret\nsecond line\n";
  set("FARGPU_TOKEN_FILE", path);
  const auto server = *bootstrap::parse_server("gpu1");
  EXPECT_EQ(read_settings()->tokens.of(server), "secret");
  set("FARGPU_TOKEN", "direct");
  EXPECT_EQ(read_settings()->tokens.of(server), "direct");
  set("FARGPU_SERVER", "gpu1,gpu2");
  EXPECT_FALSE(read_settings().ok()) << "whose is it?";
  std::filesystem::remove(path);
}

TEST_F(Environment, MissingTokenFile) {
  set("FARGPU_TOKEN_FILE", "/nonexistent/token");
  const auto settings = read_settings();
  ASSERT_FALSE(settings.ok());
  EXPECT_NE(settings.status().message().find("/nonexistent/token"), std::string::npos);
}

TEST_F(Environment, OldNamesOfManagedModesAreRead) {
  EXPECT_EQ(*read_managed_mode(), FetchMode::kAuto);
  set("FARGPU_MANAGED", "touched");
  EXPECT_EQ(*read_managed_mode(), FetchMode::kTouched);
  EXPECT_EQ(renamed_managed_mode(), "");
  set("FARGPU_MANAGED", "userfaultfd");
  EXPECT_EQ(*read_managed_mode(), FetchMode::kTouched);
  EXPECT_EQ(renamed_managed_mode(), "FARGPU_MANAGED=userfaultfd is FARGPU_MANAGED=touched now");
  set("FARGPU_MANAGED", "signal");
  EXPECT_EQ(*read_managed_mode(), FetchMode::kEager);
  EXPECT_EQ(renamed_managed_mode(), "FARGPU_MANAGED=signal is FARGPU_MANAGED=eager now");
}

TEST(FetchMode, IsEagerBesideAnAdapterUnlessAsked) {
  std::string folder = testing::TempDir() + "/devices-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::filesystem::path devices = folder;
  std::filesystem::create_directories(devices / "infiniband");
  std::filesystem::create_directories(devices / "vfio");
  const auto make = [&](const char* name) { EXPECT_TRUE(std::ofstream(devices / name)) << name; };
  make("infiniband/rdma_cm");
  make("vfio/vfio");
  EXPECT_FALSE(has_adapter(devices));
  for (const char* name : {"infiniband/uverbs0", "hfi1_0", "cxi0", "vfio/12"}) {
    make(name);
    EXPECT_TRUE(has_adapter(devices)) << name;
    std::filesystem::remove(devices / name);
  }
  EXPECT_FALSE(has_adapter(devices));
  EXPECT_EQ(wants_touched(FetchMode::kAuto), !has_adapter());
  EXPECT_TRUE(wants_touched(FetchMode::kTouched));
  EXPECT_FALSE(wants_touched(FetchMode::kEager));
  std::filesystem::remove_all(devices);
}

}  // namespace
}  // namespace fargpu::client
