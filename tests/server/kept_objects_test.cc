// What is kept with an object goes when that has ended, with whatever it ended.
#include "server/object/kept_objects.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace fargpu::server {
namespace {

using rpc::HandleKind;
using rpc::make_handle;

constexpr uint64_t kModule = make_handle(HandleKind::kModule, 1);
constexpr uint64_t kFunction = make_handle(HandleKind::kFunction, 2);
constexpr uint64_t kStream = make_handle(HandleKind::kStream, 3);
constexpr uint64_t kLibrary = make_handle(HandleKind::kLibrary, 4);
constexpr uint16_t kContext = 1;

class KeptObjectsTest : public ::testing::Test {
 protected:
  // Notes its number when it goes.
  struct Thing {
    Thing(int number, std::vector<int>& gone) : number(number), gone(&gone) {}
    Thing(Thing&& other) noexcept
        : number(other.number), gone(std::exchange(other.gone, nullptr)) {}
    Thing& operator=(Thing&&) = delete;
    ~Thing() {
      if (gone != nullptr) gone->push_back(number);
    }
    int number;
    std::vector<int>* gone;
  };

  KeptObjectsTest() {
    handles_.when_ended([this](const ObjectEnd& end) { kept_.ended(end.id); });
    add(HandleKind::kModule, kModule);
    add(HandleKind::kFunction, kFunction, kModule);
    add(HandleKind::kStream, kStream);
    add(HandleKind::kLibrary, kLibrary);
  }
  void add(HandleKind kind, uint64_t id, uint64_t parent = 0) {
    ASSERT_EQ(handles_.add(kind, id, {this, parent, kContext}), CUDA_SUCCESS);
  }
  Thing thing(int number) { return {number, gone_}; }

  std::vector<int> gone_;
  HandleTable handles_;
  KeptObjects kept_{handles_};
};

TEST_F(KeptObjectsTest, GoWithTheirObjectTheLastOneFirst) {
  kept_.keep(UntilEnded{kStream}, thing(1));
  kept_.keep(UntilEnded{kStream}, thing(2));
  kept_.keep(UntilEnded{kLibrary}, thing(3));
  EXPECT_EQ(kept_.count(HandleKind::kStream), 2u);
  EXPECT_TRUE(gone_.empty());
  handles_.remove(kStream);
  EXPECT_EQ(gone_, (std::vector{2, 1}));
  EXPECT_EQ(kept_.count(HandleKind::kStream), 0u);
  EXPECT_EQ(kept_.count(HandleKind::kLibrary), 1u);
}

TEST_F(KeptObjectsTest, GoWithTheParentAndWithTheContext) {
  kept_.keep(UntilEnded{kFunction}, thing(1));
  kept_.keep(UntilEnded{kStream}, thing(2));
  kept_.keep(UntilEnded{kLibrary}, thing(3));
  handles_.remove(kModule);
  EXPECT_EQ(gone_, std::vector{1});
  handles_.remove_context(kContext);
  EXPECT_EQ(gone_, (std::vector{1, 2})) << "a library outlives the context";
}

TEST_F(KeptObjectsTest, NothingIsKeptWithWhatIsNotThere) {
  handles_.remove(kStream);
  kept_.keep(UntilEnded{kStream}, thing(1));
  EXPECT_EQ(gone_, std::vector{1});
  EXPECT_EQ(kept_.count(HandleKind::kStream), 0u);
}

TEST_F(KeptObjectsTest, ASharedThingOutlivesItsObjectWhileItIsUsed) {
  auto used = std::make_shared<Thing>(1, gone_);
  kept_.keep(UntilEnded{kStream}, used);
  handles_.remove(kStream);
  EXPECT_TRUE(gone_.empty());
  used.reset();
  EXPECT_EQ(gone_, std::vector{1});
}

// As an executable graph that keeps its graph would.
TEST_F(KeptObjectsTest, TheEndOfOneThingMayBeThatOfAnotherObject) {
  struct Ends {
    HandleTable* handles;
    ~Ends() { handles->remove(kLibrary); }
  };
  kept_.keep(UntilEnded{kStream}, std::shared_ptr<Ends>(new Ends{&handles_}));
  kept_.keep(UntilEnded{kLibrary}, thing(2));
  handles_.remove(kStream);
  EXPECT_EQ(gone_, std::vector{2});
}

TEST_F(KeptObjectsTest, AllGoWithTheSession) {
  {
    KeptObjects kept(handles_);
    kept.keep(UntilEnded{kStream}, thing(1));
    kept.keep(UntilEnded{kLibrary}, thing(2));
  }
  EXPECT_EQ(gone_.size(), 2u);
}

}  // namespace
}  // namespace fargpu::server
