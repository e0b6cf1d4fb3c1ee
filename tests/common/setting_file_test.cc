// Files that settings name: what was kept of them, and what they are now.
#include "common/host/setting_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

namespace fargpu {
namespace {

std::string path_of(const char* name) {
  return ::testing::TempDir() + name + std::to_string(::getpid());
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

TEST(SettingFile, IsReadAsItWasKept) {
  const std::string path = path_of("kept");
  write(path, "before\n");
  EXPECT_EQ(*setting_file(path), "before\n");
  write(path, "kept\n");
  keep_setting_file(path);
  write(path, "later\n");
  EXPECT_EQ(*setting_file(path), "kept\n");
  ::unlink(path.c_str());
  EXPECT_EQ(*setting_file(path), "kept\n");
}

TEST(SettingFile, WhatCannotBeKeptIsReadLater) {
  const std::string path = path_of("later");
  keep_setting_file(path);
  const Status missing = setting_file(path).status();
  EXPECT_EQ(missing.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(missing.message(), "cannot read " + path + ": No such file or directory");
  write(path, "made later");
  EXPECT_EQ(*setting_file(path), "made later");
  ::unlink(path.c_str());
}

// Loading a library must not wait for somebody who writes, nor take what the first call needs.
TEST(SettingFile, APipeIsNotReadAtTheLoad) {
  const std::string path = path_of("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  keep_setting_file(path);
  std::thread writer([&] { write(path, "through a pipe"); });
  EXPECT_EQ(*setting_file(path), "through a pipe");
  writer.join();
  ::unlink(path.c_str());
}

TEST(SettingFile, HasALimit) {
  const std::string path = path_of("large");
  write(path, std::string((4u << 20) + 1, 'x'));
  keep_setting_file(path);
  EXPECT_EQ(setting_file(path).status().code(), StatusCode::kInvalidArgument);
  write(path, std::string(4u << 20, 'x'));
  EXPECT_EQ(setting_file(path)->size(), 4u << 20);
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace fargpu
