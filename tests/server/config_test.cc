#include "server/daemon/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace fargpu::server {
namespace {

using ::testing::HasSubstr;

Status parse(const std::string& text, DaemonConfig& config) {
  return parse_config(text, "test.toml", config);
}

TEST(Config, ReadsEveryKindOfValue) {
  DaemonConfig config;
  const Status status = parse(
      "listen = [\"127.0.0.1:0\", \"/tmp/socket\"]\ndriver = \"sim\"\nsim-gpus = "
      "2\nmax-memory-per-job = \"8G\"\nmemory-per-job = \"1G\"\n"
      "max-bulk = 1048576\nhello-deadline = \"250ms\"\ndrain = 7\noversubscribe-memory = "
      "true\nmax-sessions = 3\n"
      "sim-slot = 31\nworker-open-files = 512\nworker-oom-score = 700\nworker-core-dumps = true\n",
      config);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config.listen, (std::vector<std::string>{"127.0.0.1:0", "/tmp/socket"}));
  EXPECT_EQ(config.driver, "sim");
  EXPECT_EQ(config.sim_gpus, 2u);
  EXPECT_EQ(config.sim_slot, 31u);
  EXPECT_EQ(config.max_memory_per_job, uint64_t{8} << 30);
  EXPECT_EQ(config.memory_per_job, uint64_t{1} << 30);
  EXPECT_EQ(config.frame.max_bulk_bytes, 1u << 20);
  EXPECT_EQ(config.hello_deadline, std::chrono::milliseconds(250));
  EXPECT_EQ(config.drain, std::chrono::seconds(7));
  EXPECT_TRUE(config.placement.oversubscribe_memory);
  EXPECT_EQ(config.placement.max_sessions, 3u);
  EXPECT_EQ(config.worker.open_files, 512u);
  EXPECT_EQ(config.worker.oom_score, 700u);
  EXPECT_TRUE(config.worker.core_dumps);
}

TEST(Config, AnEmptyFileChangesNothing) {
  DaemonConfig config;
  config.driver = "sim";
  EXPECT_TRUE(parse("", config).ok());
  EXPECT_TRUE(parse("# nothing\n", config).ok());
  EXPECT_EQ(config.driver, "sim");
}

// The error says the file, the line, the key, and what would be right; nothing of the file is
// applied.
TEST(Config, ErrorsNameLineAndKey) {
  const struct {
    const char* text;
    const char* expected;
  } cases[] = {
      {"driver = \"sim\"\nlisten = 5\n", "test.toml:2: listen must be a text, or a list"},
      {"sim-slot = 32\n", "test.toml:1: sim-slot must be a number from 0 to 31"},
      {"driver = 3\n", "test.toml:1: driver must be a text in quotes"},
      {"max-sessions = 0\n", "test.toml:1: max-sessions must be a number from 1"},
      {"max-sessions = \"many\"\n", "max-sessions must be a number"},
      {"memory-per-session = \"8X\"\n", "memory-per-session must be a size"},
      {"max-bulk = \"8T\"\n", "max-bulk must be a size"},
      {"hello-deadline = \"soon\"\n", "hello-deadline must be a time"},
      {"hello-deadline = -1\n", "hello-deadline must be a time"},
      {"worker-oom-score = 1001\n", "worker-oom-score must be a number from 0 to 1000"},
      {"worker-open-files = 10\n", "worker-open-files must be a number from 256"},
      {"worker-core-dumps = 1\n", "worker-core-dumps must be true or false"},
      {"oversubscribe-memory = 1\n", "oversubscribe-memory must be true or false"},
      {"\n\nmax-session = 4\n", "test.toml:3: unknown key 'max-session'"},
      {"listen = [\"a:1\", 2]\n", "listen must be"},
      {"driver = \n", "test.toml:1: not valid TOML"},
      {"[[[", "not valid TOML"},
  };
  for (const auto& c : cases) {
    DaemonConfig config;
    const Status status = parse(c.text, config);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(status.message(), HasSubstr(c.expected));
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << "one line: " << status.message();
    EXPECT_EQ(config.driver, "auto");
  }
}

TEST(Config, AMissingFileIsAnErrorWithItsName) {
  DaemonConfig config;
  const Status status = load_config("/nonexistent/fargpud.toml", config);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("/nonexistent/fargpud.toml"));
}

TEST(Config, ListensToEverybodyOnlyBehindAToken) {
  DaemonConfig config;
  EXPECT_EQ(default_listen(config), std::vector<std::string>{"127.0.0.1:14900"});
  config.token_file = "/etc/fargpu/token";
  EXPECT_EQ(default_listen(config), std::vector<std::string>{"0.0.0.0:14900"});
}

TEST(Config, KnowsWhichAddressesOthersReach) {
  for (const char* where : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "gpuhost:1"})
    EXPECT_TRUE(is_for_other_machines(where)) << where;
  for (const char* where :
       {"127.0.0.1:1", "localhost:1", "[::1]:1", "::1", "/run/socket", "unix:s"})
    EXPECT_FALSE(is_for_other_machines(where)) << where;
}

TEST(Config, PermissionsOfSockets) {
  DaemonConfig config;
  EXPECT_EQ(config.socket_mode, 0600u);
  EXPECT_TRUE(parse("socket-mode = \"0660\"", config).ok());
  EXPECT_EQ(config.socket_mode, 0660u);
  for (const char* wrong : {"\"rw\"", "\"\"", "\"01000\"", "\"0680\"", "660"})
    EXPECT_FALSE(parse(std::string("socket-mode = ") + wrong, config).ok()) << wrong;
}

TEST(Config, ChecksWhatFlagsCanBreak) {
  const auto broken = [](auto change) {
    DaemonConfig config;
    change(config);
    return check_config(config).code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(check_config(DaemonConfig()).ok());
  EXPECT_TRUE(broken([](DaemonConfig& c) { c.listen = {"host:port"}; }));
  EXPECT_FALSE(broken([](DaemonConfig& c) { c.listen = {"./a/socket", "unix:socket"}; }));
  EXPECT_TRUE(broken([](DaemonConfig& c) { c.frame.max_body_bytes = 10; }));
  EXPECT_TRUE(broken([](DaemonConfig& c) { c.frame.max_bulk_bytes = uint64_t{4} << 30; }));
  EXPECT_TRUE(broken([](DaemonConfig& c) { c.hello_deadline = std::chrono::milliseconds(0); }));
  EXPECT_TRUE(broken([](DaemonConfig& c) { c.sim_memory = "lots"; }));
  EXPECT_TRUE(broken([](DaemonConfig& c) { c.placement.max_sessions = 0; }));
  EXPECT_TRUE(broken([](DaemonConfig& c) { c.max_memory_per_job = 1, c.memory_per_job = 2; }));
}

// What the sample says is right: with every line uncommented it still loads.
TEST(Config, TheSampleLoads) {
  std::ifstream file(FARGPU_SAMPLE_CONFIG);
  ASSERT_TRUE(file);
  std::stringstream text;
  text << file.rdbuf();
  DaemonConfig config;
  EXPECT_TRUE(parse(text.str(), config).ok());
  // The same with every "# key = value" switched on.
  std::string active;
  for (std::string line; std::getline(text, line); active += line + "\n") {
    const size_t key_end = line.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", 2);
    if (line.starts_with("# ") && key_end != std::string::npos && key_end > 2 &&
        line.compare(key_end, 3, " = ") == 0)
      line.erase(0, 2);
  }
  const Status status = parse(active, config);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config.token_file, "/etc/fargpu/token");
  const DaemonConfig defaults;
  EXPECT_EQ(config.frame.max_bulk_bytes, defaults.frame.max_bulk_bytes);
  EXPECT_EQ(config.placement.max_sessions, defaults.placement.max_sessions);
  EXPECT_EQ(config.drain, defaults.drain);
  EXPECT_EQ(config.worker.open_files, defaults.worker.open_files);
  EXPECT_EQ(config.worker.oom_score, defaults.worker.oom_score);
  EXPECT_EQ(config.worker.core_dumps, defaults.worker.core_dumps);
}

}  // namespace
}  // namespace fargpu::server
