#include "services/router/client_calls/background_work.h"

#include <gmock/gmock.h>
#include <grpcpp/completion_queue.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "common/rpc/async_tag.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kPatience(60);

class BackgroundWorkTest : public testing::Test {
 protected:
  ~BackgroundWorkTest() override {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) static_cast<AsyncTag*>(tag)->Proceed(ok);
  }

  bool PollOnce() {
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kPatience) !=
        grpc::CompletionQueue::GOT_EVENT) {
      return false;
    }
    static_cast<AsyncTag*>(tag)->Proceed(ok);
    return true;
  }

  grpc::CompletionQueue queue_;
};

TEST_F(BackgroundWorkTest, EachDoneFollowsItsWork) {
  BackgroundWork background(&queue_);
  std::vector<int> finished;  // `done` is on this thread
  for (int i = 0; i < 8; ++i) {
    auto computed = std::make_shared<int>(-1);
    ASSERT_TRUE(background.Run([computed, i] { *computed = i; },
                               [computed, &finished] { finished.push_back(*computed); }));
  }
  EXPECT_FALSE(background.quiet());
  while (!background.quiet()) ASSERT_TRUE(PollOnce());
  EXPECT_THAT(finished, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(BackgroundWorkTest, NoMoreThanSoManyWait) {
  BackgroundWork background(&queue_);
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  for (size_t i = 0; i < BackgroundWork::kMaxJobs; ++i) {
    ASSERT_TRUE(background.Run([gone] { gone.wait(); }, [] {}));
  }
  EXPECT_FALSE(background.Run([] {}, [] {}));
  go.set_value();
  while (!background.quiet()) ASSERT_TRUE(PollOnce());
}

TEST_F(BackgroundWorkTest, WorkThatHangsIsLeftToItself) {
  auto go = std::make_shared<std::promise<void>>();
  std::promise<void> entered;
  std::promise<void> ended;
  {
    BackgroundWork background(&queue_);
    // Says when it is destroyed, which is once the thread is over with it.
    const auto last = std::shared_ptr<void>(nullptr, [&ended](void*) { ended.set_value(); });
    ASSERT_TRUE(background.Run(
        [go, &entered, last] {
          entered.set_value();
          go->get_future().wait();
        },
        [] { ADD_FAILURE() << "its `done` came"; }));
    ASSERT_TRUE(background.Run([] { ADD_FAILURE() << "what waited was begun"; }, [] {}));
    entered.get_future().wait();
    background.Abandon();
    EXPECT_TRUE(background.quiet());
    EXPECT_FALSE(background.Run([] {}, [] {}));
  }
  // It hangs still, and nothing waits for it.
  auto over = ended.get_future();
  EXPECT_EQ(over.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  go->set_value();
  EXPECT_EQ(over.wait_for(kPatience), std::future_status::ready);
}

}  // namespace
}  // namespace tandem
