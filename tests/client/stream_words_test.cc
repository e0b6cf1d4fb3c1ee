// Words that streams write for who waits: which values they get, and when they go on.
#include "client/hostmem/stream_words.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <optional>

namespace fargpu::client {
namespace {

class StreamWordsTest : public testing::Test {
 protected:
  using Word = StreamWords::Word;
  static constexpr uint64_t kOnDevice = 0x900000;
  std::atomic<uint32_t>& memory_of(const Word& word) {
    return *reinterpret_cast<std::atomic<uint32_t>*>(word.address());
  }

  alignas(64) std::array<std::byte, StreamWords::kWords * StreamWords::kSpacing> memory_{};
  StreamWords words_{memory_.data(), kOnDevice};
};

TEST_F(StreamWordsTest, EachWaitHasAWordAndAValueOfItsOwn) {
  Word first(&words_), second(&words_);
  ASSERT_TRUE(first && second);
  EXPECT_NE(first.address(), second.address());
  EXPECT_EQ(second.address() - first.address(), second.device_address() - first.device_address());
  EXPECT_EQ(first.device_address(), kOnDevice);
  memory_of(first) = first.watched().value;
  EXPECT_TRUE(first.watched().reached());
  EXPECT_FALSE(second.watched().reached());
}

TEST_F(StreamWordsTest, GoesOnWhenItsWaitHasEndedWell) {
  std::optional<Word> word(std::in_place, &words_);
  const uint64_t address = word->address();
  memory_of(*word) = word->watched().value;
  word->ended_well();
  word.emplace(&words_);
  EXPECT_EQ(word->address(), address);
  EXPECT_FALSE(word->watched().reached());
  word.emplace(&words_);  // it did not end well
  EXPECT_NE(word->address(), address);
}

// As after 2^32 waits that the worker has ended without the word.
TEST_F(StreamWordsTest, ValuesMayComeRoundAgain) {
  uint64_t address = 0;
  uint32_t value = 0;
  {
    Word word(&words_);
    address = word.address();
    value = word.watched().value;
    word.ended_well();
  }
  reinterpret_cast<std::atomic<uint32_t>*>(address)->store(value + 1);
  Word word(&words_);
  ASSERT_EQ(word.address(), address);
  ASSERT_EQ(word.watched().value, value + 1);
  EXPECT_FALSE(word.watched().reached());
  EXPECT_EQ(memory_of(word).load(), value) << "a wait that the worker still looks at has ended";
}

TEST_F(StreamWordsTest, EndsWhenAllAreTaken) {
  std::array<std::optional<Word>, StreamWords::kWords> taken;
  for (auto& word : taken) {
    word.emplace(&words_);
    EXPECT_TRUE(*word);
  }
  EXPECT_FALSE(Word(&words_));
  taken[7]->ended_well();
  taken[7].reset();
  EXPECT_TRUE(Word(&words_));
  EXPECT_FALSE(Word(nullptr));
}

}  // namespace
}  // namespace fargpu::client
