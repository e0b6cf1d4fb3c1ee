#include "sim/base/program_report.h"

#include <gtest/gtest.h>

namespace fargpu::sim {
namespace {

TEST(ProgramReportTest, EachTextIsOneLineOnce) {
  ProgramReport report;
  EXPECT_EQ(report.next("two\nlines"), "fargpu: simulated GPU: two lines\n");
  EXPECT_EQ(report.next("two\nlines"), "");
  EXPECT_EQ(report.next("lines"), "fargpu: simulated GPU: lines\n");
}

TEST(ProgramReportTest, LongTextsAreCut) {
  ProgramReport report;
  const std::string line = report.next(std::string(5000, 'x'));
  EXPECT_LT(line.size(), ProgramReport::kMostBytes + 50);
  EXPECT_NE(line.find("xxx ...\n"), std::string::npos);
}

TEST(ProgramReportTest, OfTooManyTheLastLineSaysSo) {
  ProgramReport report;
  for (size_t i = 0; i < ProgramReport::kMostLines; ++i)
    EXPECT_NE(report.next(std::to_string(i) + " of them"), "");
  EXPECT_NE(report.next("one more").find("no further"), std::string::npos);
  EXPECT_EQ(report.next("and another"), "");
}

}  // namespace
}  // namespace fargpu::sim
