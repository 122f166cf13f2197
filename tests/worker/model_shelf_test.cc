#include "services/worker/model_shelf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/rpc/protocol.h"
#include "common/status.h"
#include "services/draft/drafter_server.h"
#include "services/worker/model_folder_entry.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/worker_client.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using Client = testing::WorkerClient<v1::DraftWorker, v1::DraftCommand, v1::DraftReply>;
using std::chrono::milliseconds;

// A folder of models, and a shelf that loads them. While `hold` is true, no load ends.
class ModelShelfTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string name : {"first", "second", "third"}) {
      testing::WriteRandomModel(folder_ / name, {});
    }
    first_ = *WorkerModel::Load({.folder = folder_ / "first", .max_slots = 2});
    shelf_ = std::make_unique<ModelShelf>(first_.get(), [this](const std::string& name) {
      ++num_loads_;
      while (hold_) std::this_thread::sleep_for(milliseconds(1));
      return Load(name);
    });
  }
  absl::StatusOr<std::unique_ptr<WorkerModel>> Load(const std::string& name) {
    WorkerModelOptions options;
    options.name = name;
    options.max_slots = 2;
    TANDEM_ASSIGN_OR_RETURN(options.folder,
                            FindInFolder({folder_ / "", "--draft-folder", "model"}, name));
    return WorkerModel::Load(options);
  }
  static absl::StatusOr<WorkerModel*> Await(const ModelShelf::Claim& claim) {
    while (true) {
      absl::StatusOr<WorkerModel*> model = claim.Model();
      if (!model.ok() || *model != nullptr) return model;
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  testing::TempDir folder_;
  std::atomic<bool> hold_ = false;
  std::atomic<int> num_loads_ = 0;
  std::unique_ptr<WorkerModel> first_;
  std::unique_ptr<ModelShelf> shelf_;
};

TEST_F(ModelShelfTest, AnEmptyNameClaimsTheFirstModel) {
  EXPECT_EQ(*shelf_->ClaimModel("").Model(), first_.get());
  EXPECT_EQ(num_loads_, 0);
}

TEST_F(ModelShelfTest, AModelLivesAsLongAsItsClaims) {
  auto one = std::make_unique<ModelShelf::Claim>(shelf_->ClaimModel("second"));
  const absl::StatusOr<WorkerModel*> model = Await(*one);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->Describe().model(), "second");
  auto other = std::make_unique<ModelShelf::Claim>(shelf_->ClaimModel("second"));
  EXPECT_EQ(*other->Model(), *model);
  EXPECT_EQ(num_loads_, 1);
  (*model)->stats().num_batches = 7;
  one.reset();
  EXPECT_EQ(shelf_->Sum().num_models, 2U);
  EXPECT_EQ(shelf_->Sum().num_slots, 4U);
  other.reset();
  EXPECT_EQ(shelf_->Sum().num_models, 1U);
  EXPECT_EQ(shelf_->Sum().num_slots, 2U);
  // What it did stays counted.
  EXPECT_EQ(shelf_->Sum().stats.num_batches, 7U);
  ASSERT_TRUE(Await(shelf_->ClaimModel("second")).ok());
  EXPECT_EQ(num_loads_, 2);
}

TEST_F(ModelShelfTest, AClaimThatEndsWhileTheModelLoadsLeavesNothing) {
  hold_ = true;
  {
    const ModelShelf::Claim loading = shelf_->ClaimModel("second");
    const ModelShelf::Claim waiting = shelf_->ClaimModel("third");
    while (num_loads_ == 0) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_EQ(*loading.Model(), nullptr);
  }
  hold_ = false;
  // The third model is not loaded by the claims that ended, but by this one.
  ASSERT_TRUE(Await(shelf_->ClaimModel("third")).ok());
  EXPECT_EQ(num_loads_, 2);
}

TEST_F(ModelShelfTest, AFailureNamesWhatIsThereAndIsForgottenWithTheClaim) {
  std::filesystem::create_directory(folder_ / "fourth");
  {
    const ModelShelf::Claim claim = shelf_->ClaimModel("fourth");
    EXPECT_FALSE(Await(claim).ok());
  }
  std::filesystem::remove(folder_ / "fourth");
  testing::WriteRandomModel(folder_ / "fourth", {});
  EXPECT_TRUE(Await(shelf_->ClaimModel("fourth")).ok());
  const auto unknown = Await(shelf_->ClaimModel("fifth"));
  EXPECT_EQ(unknown.status().message(),
            "\"fifth\" is not in --draft-folder, which holds first, fourth, second, third");
  for (const std::string name : {"..", ".", "a/b", "/etc"}) {
    EXPECT_THAT(std::string(Await(shelf_->ClaimModel(name)).status().message()),
                HasSubstr("want the name of a folder in --draft-folder, without a slash"));
  }
}

TEST_F(ModelShelfTest, WithoutALoaderThereIsOneModel) {
  ModelShelf alone(first_.get());
  EXPECT_THAT(std::string(alone.ClaimModel("second").Model().status().message()),
              HasSubstr("without --draft-folder"));
}

class ShelfServerTest : public ModelShelfTest {
 protected:
  void SetUp() override {
    ModelShelfTest::SetUp();
    const Address address = *Address::Parse("unix:" + (folder_ / "draft.sock").string());
    server_.emplace(*StartDrafterServer(address, *shelf_));
  }
  static v1::DraftCommand AttachTo(const std::string& model) {
    v1::DraftCommand command;
    v1::Attach& attach = *command.mutable_attach();
    attach.set_protocol_version(kProtocolVersion);
    attach.set_max_slots(1);
    attach.set_max_draft_length(4);
    attach.set_session_token(1);
    attach.set_model(model);
    return command;
  }

  std::optional<testing::RunningServer> server_;
};

TEST_F(ShelfServerTest, OtherSessionsAreServedWhileAModelLoads) {
  Client first(server_->address());
  EXPECT_EQ(first.Call(AttachTo("")).attach().model(), "first");
  hold_ = true;
  Client second(server_->address());
  second.Send(AttachTo("second"));
  while (num_loads_ == 0) second.PollBriefly();
  v1::DraftCommand propose;
  propose.mutable_propose();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(first.Call(propose).has_propose());
  hold_ = false;
  EXPECT_EQ(second.Receive().attach().model(), "second");
  EXPECT_TRUE(second.Call(propose).has_propose());
}

TEST_F(ShelfServerTest, ASessionThatEndsWhileItsModelLoadsIsForgotten) {
  hold_ = true;
  std::optional<Client> gone(std::in_place, server_->address());
  gone->Send(AttachTo("second"));
  while (num_loads_ == 0) gone->PollBriefly();
  gone.reset();
  hold_ = false;
  Client next(server_->address());
  EXPECT_EQ(next.Call(AttachTo("third")).attach().model(), "third");
}

TEST_F(ShelfServerTest, ACommandBeforeTheModelIsThereEndsTheSession) {
  hold_ = true;
  Client client(server_->address());
  client.Send(AttachTo("second"));
  v1::DraftCommand propose;
  propose.mutable_propose();
  client.Send(propose);
  EXPECT_EQ(client.WaitClosed().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  hold_ = false;
}

TEST_F(ShelfServerTest, AModelThatCannotBeLoadedIsRefusedWithTheReason) {
  Client client(server_->address());
  const v1::DraftReply reply = client.Call(AttachTo("unknown"));
  EXPECT_EQ(reply.error().code(), v1::WORKER_CODE_FAILED_PRECONDITION);
  EXPECT_THAT(reply.error().message(), HasSubstr("which holds first, second, third"));
  EXPECT_EQ(client.WaitClosed().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ShelfServerTest, AServerStopsWhileAModelLoads) {
  hold_ = true;
  Client client(server_->address());
  client.Send(AttachTo("second"));
  while (num_loads_ == 0) client.PollBriefly();
  server_.reset();
  hold_ = false;
  EXPECT_FALSE(client.WaitClosed().ok());
}

}  // namespace
}  // namespace tandem
