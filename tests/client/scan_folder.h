// A folder for the files that a test of `fargpu scan` makes; it goes with the test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace fargpu::scan {

class ScanFolder : public testing::Test {
 protected:
  ScanFolder() {
    char name[] = "/tmp/fargpu-scan-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~ScanFolder() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }

  std::string folder_;
};

}  // namespace fargpu::scan
