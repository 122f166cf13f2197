#include "services/router/server/pod_lookup.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/monotonic_seconds.h"
#include "common/rpc/async_tag.h"
#include "common/status.h"
#include "tests/router/toy_tokenizer.h"

namespace tandem {
namespace {

using Hosts = std::vector<std::string>;
using Addresses = absl::StatusOr<Hosts>;

constexpr double kSeconds = 60;  // from one look to the next

class PodLookupTest : public ::testing::Test {
 protected:
  PodLookupTest() { fleet_.Start(MonotonicSeconds()); }
  ~PodLookupTest() override {
    lookup_.reset();
    queue_.Shutdown();
    while (PollOnce()) {
    }
  }

  void Look(const std::string& verifiers, PodDirectory::Resolve resolve = ResolveHost) {
    lookup_.emplace(*PodDirectory::Parse(verifiers, "none", std::move(resolve)), kSeconds, &fleet_,
                    &queue_);
    lookup_->Start();
  }
  // False: the queue is shut down.
  bool PollOnce() {
    void* tag = nullptr;
    bool ok = false;
    if (!queue_.Next(&tag, &ok)) return false;
    static_cast<AsyncTag*>(tag)->Proceed(ok);
    return true;
  }

  const testing::ToyTokenizer tokenizer_ = testing::ToyTokenizer::OfSize(40);
  Fleet fleet_{EngineOptions(), &tokenizer_};
  grpc::CompletionQueue queue_;
  std::optional<PodLookup> lookup_;
};

TEST_F(PodLookupTest, FixedPodsAreToldAtOnceAndNeverAgain) {
  Look("127.0.0.1:1,127.0.0.1:2");
  EXPECT_EQ(fleet_.num_pods(), 2u);
  EXPECT_TRUE(std::isinf(lookup_->NextDeadline()));
  EXPECT_TRUE(lookup_->quiet());
}

TEST_F(PodLookupTest, ANameIsLookedUpInTheBackgroundAndAgainLater) {
  Hosts hosts = {"10.0.0.1"};
  Look("dns:pods:7001", [&](const std::string&) -> Addresses { return hosts; });
  EXPECT_FALSE(lookup_->quiet());
  EXPECT_TRUE(std::isinf(lookup_->NextDeadline())) << "one look at a time";
  ASSERT_TRUE(PollOnce());
  EXPECT_EQ(fleet_.num_pods(), 1u);
  EXPECT_LE(lookup_->NextDeadline(), MonotonicSeconds() + 1) << "until now no pod was known";
  EXPECT_TRUE(lookup_->quiet());

  lookup_->Tick(lookup_->NextDeadline() - 0.5);
  EXPECT_TRUE(lookup_->quiet()) << "it is not time yet";
  hosts = {"10.0.0.1", "10.0.0.2"};
  lookup_->Tick(lookup_->NextDeadline());
  EXPECT_FALSE(lookup_->quiet());
  ASSERT_TRUE(PollOnce());
  EXPECT_EQ(fleet_.num_pods(), 2u);
  EXPECT_GT(lookup_->NextDeadline(), MonotonicSeconds() + kSeconds / 2);
}

TEST_F(PodLookupTest, WithoutAnyPodItLooksAgainWithinASecond) {
  Look("dns:pods:7001", [](const std::string&) -> Addresses { return Unavailable("no answer"); });
  ASSERT_TRUE(PollOnce());
  EXPECT_EQ(fleet_.num_pods(), 0u);
  EXPECT_LE(lookup_->NextDeadline(), MonotonicSeconds() + 1);
}

TEST_F(PodLookupTest, PodsStayWhereANameIsNotAnswered) {
  bool answers = true;
  Look("dns:pods:7001", [&](const std::string&) -> Addresses {
    if (answers) return Hosts{"10.0.0.1"};
    return Unavailable("no answer");
  });
  ASSERT_TRUE(PollOnce());
  answers = false;
  lookup_->Tick(lookup_->NextDeadline());
  ASSERT_TRUE(PollOnce());
  EXPECT_EQ(fleet_.num_pods(), 1u);
}

TEST_F(PodLookupTest, AfterItStoppedNothingIsFoundAnyMore) {
  Look("dns:pods:7001", [](const std::string&) -> Addresses { return Hosts{"10.0.0.1"}; });
  lookup_->Stop();
  ASSERT_TRUE(PollOnce());
  EXPECT_EQ(fleet_.num_pods(), 0u);
  EXPECT_TRUE(std::isinf(lookup_->NextDeadline()));
}

TEST_F(PodLookupTest, ALookThatHangsIsLeftToItself) {
  // Shared with the thread, which outlives the test's body.
  auto never = std::make_shared<std::promise<void>>();
  auto asked = std::make_shared<std::promise<void>>();
  Look("dns:pods:7001", [never, asked](const std::string&) -> Addresses {
    asked->set_value();
    never->get_future().wait();
    return Hosts{"10.0.0.1"};
  });
  asked->get_future().wait();
  lookup_->Abandon();
  EXPECT_TRUE(lookup_->quiet());
  never->set_value();
}

}  // namespace
}  // namespace tandem
