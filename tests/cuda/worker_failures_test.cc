// Tests of the judge and the proposer on a device: each runtime call fails in turn, few bytes come
// to the host, and sessions lose their device. They run only over the shim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "services/draft/cuda_proposer.h"
#include "services/draft/drafter_session.h"
#include "services/verifier/cuda_judge.h"
#include "services/verifier/verifier_session.h"
#include "services/worker/load_on_gpu.h"
#include "tests/cuda/small_model.h"
#include "tests/simt/failing_calls.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/slots/to_slot_open.h"
#include "tests/worker/tiny_router.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using testing::ToSlotOpen;

constexpr size_t kVocabularySize = 64;
constexpr size_t kContext = 64;
// Number of a call in a session's pass, after the rows were sent and before the graph begins.
constexpr uint64_t kCallOfThePass = 3;
const std::vector<int32_t> kPrompt = {5, 11, 3};

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// Runs without graphs, because passes recover from failures of graphs. Tests of the model cover
// that.
class WorkerFailuresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::WriteRandomModel(folder_.path(), testing::SmallModel(kVocabularySize, kContext));
    model_ =
        *CudaModel::Load(folder_.path(), {.max_slots = 2, .judges = true, .use_graphs = false});
    caches_ = std::make_unique<CachePool>(*model_->TakePages(), 2, kContext);
    slots_ = std::make_unique<SlotTable>(caches_.get(), kVocabularySize, 2);
    greedy_.repetition_penalty = 1.2f;
    greedy_.num_logprobs = 2;
    sampled_.seed = 7;
    sampled_.audit = true;
  }
  ~WorkerFailuresTest() override { simt::FailNoCall(); }

  float* DeviceFloats(size_t count) {
    arena_ = *DeviceArena::Create(DeviceArena::Rounded(count * sizeof(float)));
    return *arena_.Take<float>(count, "rows of a ring");
  }

  // Returns the empty slot `index`, with room for a prompt and `num_more` tokens.
  Slot* EmptySlot(uint32_t index, const SamplingParams& params, size_t num_more) {
    const v1::SlotPoint at = testing::PointAt(index, epoch_, ++num_commands_, {}, 0);
    const v1::SlotOpen open = ToSlotOpen(params, static_cast<uint32_t>(kPrompt.size()));
    Slot* const slot = slots_->Check(at, &open).slot;
    EXPECT_NE(slot, nullptr);
    EXPECT_TRUE(
        slots_->Begin(at, {.token_ids = kPrompt, .num_more = num_more, .needs_logits = true}, *slot)
            .ok());
    return slot;
  }

  // Does the work of a session after a pass. If waiting failed, enqueued work is still to be done.
  absl::Status After(const absl::Status& status, const std::vector<Slot*>& slots) {
    if (!status.ok()) {
      EXPECT_TRUE(model_->stream().Wait().ok());
    }
    for (Slot* slot : slots) slot->TruncateTo(0);
    return status;
  }

  SamplingParams greedy_ = Greedy();
  SamplingParams sampled_;
  testing::TempDir folder_;
  std::unique_ptr<CudaModel> model_;
  DeviceArena arena_;
  std::unique_ptr<CachePool> caches_;
  std::unique_ptr<SlotTable> slots_;
  uint32_t epoch_ = 1;
  uint64_t num_commands_ = 0;
};

TEST_F(WorkerFailuresTest, EachFailureOfAJudgeIsReportedAndLeaksNothing) {
  const std::vector<int32_t> drafts = {4, 9};
  // The second child of the pending token is accepted, so that its row must be moved.
  int32_t best = -1;
  {
    Slot* const slot = EmptySlot(0, greedy_, 0);
    std::vector<JudgeTask> tasks(1);
    tasks[0].slot = slot;
    tasks[0].token_ids = kPrompt;
    tasks[0].sample = true;
    ASSERT_TRUE(CudaJudge(model_.get()).Run(tasks).ok());
    best = tasks[0].verdict.next_token_id;
    slot->TruncateTo(0);
  }
  const std::vector<int32_t> tree = {best == 0 ? 1 : 0, best};
  const std::vector<int32_t> parents = {kDraftRoot, kDraftRoot};
  // In the distribution of the sampled draft token, all tokens have the same probability.
  const std::vector<float> draft_log_probs(kVocabularySize,
                                           -std::log(static_cast<float>(kVocabularySize)));
  const auto work = [&] {
    Slot* const greedy = EmptySlot(0, greedy_, 2);
    Slot* const sampled = EmptySlot(1, sampled_, 1);
    std::vector<JudgeTask> tasks(2);
    tasks[0].slot = greedy;
    tasks[0].token_ids = kPrompt;
    tasks[0].draft_token_ids = tree;
    tasks[0].draft_parents = parents;
    tasks[0].sample = true;
    tasks[1].slot = sampled;
    tasks[1].token_ids = kPrompt;
    tasks[1].draft_token_ids = std::span(drafts).first(1);
    tasks[1].draft_log_probs = draft_log_probs.data();
    tasks[1].sample = true;
    CudaJudge judge(model_.get());
    const absl::Status status = judge.Run(tasks);
    if (status.ok()) {
      EXPECT_EQ(tasks[0].verdict.path, std::vector<int32_t>{1});
      EXPECT_EQ(tasks[0].verdict.log_probs.size(), 2u);
      EXPECT_TRUE(tasks[1].verdict.finite && tasks[1].drafts_valid);
    }
    return After(status, {greedy, sampled});
  };
  // The pass has about twenty calls. Before and after it are memory, the sampler, verdicts and
  // reports.
  testing::ExpectEachFailureIsTold(work, 30);
}

TEST_F(WorkerFailuresTest, EachFailureOfAProposerIsReportedAndLeaksNothing) {
  std::vector<float> rows(2 * kVocabularySize);
  const auto work = [&] {
    Slot* const greedy = EmptySlot(0, greedy_, 1);
    Slot* const sampled = EmptySlot(1, sampled_, 1);
    std::vector<DraftTask> tasks(2);
    tasks[0].slot = greedy;
    tasks[0].token_ids = kPrompt;
    tasks[0].draft_length = 2;
    tasks[1].slot = sampled;
    tasks[1].token_ids = kPrompt;
    tasks[1].draft_length = 2;
    tasks[1].draft_log_probs = rows;
    CudaProposer proposer(model_.get());
    const absl::Status status = proposer.Run(tasks);
    if (status.ok()) {
      EXPECT_EQ(tasks[0].draft_token_ids.size(), 2u);
      EXPECT_EQ(tasks[1].draft_token_ids.size(), 2u);
    }
    return After(status, {greedy, sampled});
  };
  // The calls are those of two passes, a draw after each pass, and the copy of the ids.
  testing::ExpectEachFailureIsTold(work, 40);
}

// Logits and log-probabilities stay on the device. Nothing of a ring in device memory is copied.
using WorkerTransfersTest = WorkerFailuresTest;

TEST_F(WorkerTransfersTest, OnlyDraftedIdsComeToTheHost) {
  std::vector<DraftTask> tasks(2);
  for (size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].slot = EmptySlot(static_cast<uint32_t>(i), i == 0 ? greedy_ : sampled_, 1);
    tasks[i].token_ids = kPrompt;
    tasks[i].draft_length = 2;
  }
  tasks[1].draft_log_probs = {DeviceFloats(2 * kVocabularySize), 2 * kVocabularySize};
  CudaProposer proposer(model_.get());
  const uint64_t before = simt::NumBytesToHost();
  ASSERT_TRUE(proposer.Run(tasks).ok());
  EXPECT_EQ(simt::NumBytesToHost() - before, 2 * DeviceSampler::kMaxDrafts * sizeof(int32_t));
  // If the ring is in memory of the host, rows are copied.
  std::vector<float> rows(2 * kVocabularySize);
  tasks[1].slot->TruncateTo(0);
  tasks[1].slot = EmptySlot(1, sampled_, 1);
  tasks[1].draft_log_probs = rows;
  const uint64_t before_rows = simt::NumBytesToHost();
  ASSERT_TRUE(proposer.Run(std::span(tasks).last(1)).ok());
  EXPECT_EQ(simt::NumBytesToHost() - before_rows,
            DeviceSampler::kMaxDrafts * sizeof(int32_t) + 2 * kVocabularySize * sizeof(float));
}

TEST_F(WorkerTransfersTest, OnlyVerdictsAndReportsComeToTheHost) {
  const std::vector<int32_t> drafts = {4, 9};
  float* const draft_row = DeviceFloats(kVocabularySize);
  const std::vector<float> uniform(kVocabularySize, -std::log(static_cast<float>(kVocabularySize)));
  ASSERT_TRUE(
      model_->stream().Copy(draft_row, uniform.data(), uniform.size() * sizeof(float)).ok());
  ASSERT_TRUE(model_->stream().Wait().ok());
  for (const bool with_reports : {false, true}) {
    SamplingParams greedy = greedy_;
    SamplingParams sampled = sampled_;
    if (!with_reports) {
      greedy.num_logprobs = -1;
      sampled.audit = false;
    }
    std::vector<JudgeTask> tasks(2);
    for (size_t i = 0; i < tasks.size(); ++i) {
      tasks[i].slot = EmptySlot(static_cast<uint32_t>(i), i == 0 ? greedy : sampled, 2);
      tasks[i].token_ids = kPrompt;
      tasks[i].draft_token_ids = std::span(drafts).first(2 - i);
      tasks[i].sample = true;
    }
    tasks[1].draft_log_probs = draft_row;
    CudaJudge judge(model_.get());
    const uint64_t before = simt::NumBytesToHost();
    ASSERT_TRUE(judge.Run(tasks).ok());
    EXPECT_TRUE(tasks[1].verdict.finite && tasks[1].drafts_valid);
    // The first slot has three rows, and the second slot has two.
    EXPECT_EQ(simt::NumBytesToHost() - before,
              2 * sizeof(DeviceVerdict) + (with_reports ? 5 * sizeof(DeviceReport) : 0));
    ++epoch_;  // slots are opened again
  }
}

// The router is told about a failure of a session. If the device is lost, the worker's owner is
// told before the router.
class LostDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::WriteRandomModel(folder_.path(), testing::SmallModel(kVocabularySize, kContext));
    absl::StatusOr<std::unique_ptr<WorkerModel>> loaded =
        WorkerModel::Load({.folder = folder_.path(),
                           .max_slots = 2,
                           .backend = "cuda",
                           .checks_gpu = false,
                           .judges = true,
                           .load_on_gpu = LoadOnGpu});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    model_ = *std::move(loaded);
    model_->OnDeviceLoss([this](const absl::Status& why) {
      losses_.emplace_back(why.message());
      EXPECT_EQ(num_replies_, num_replies_before_) << "the router was told before";
    });
  }
  ~LostDeviceTest() override { simt::FailNoCall(); }

  template <typename Reply, typename Session, typename Command>
  Reply Call(Session& session, const Command& command) {
    Reply reply;
    num_replies_before_ = num_replies_;
    const absl::Status status = session.Handle(command, [&](Reply emitted) {
      ++num_replies_;
      reply = std::move(emitted);
    });
    EXPECT_TRUE(status.ok()) << status;
    return reply;
  }

  testing::TempDir folder_;
  std::unique_ptr<WorkerModel> model_;
  std::vector<std::string> losses_;
  int num_replies_ = 0;
  int num_replies_before_ = 0;
};

TEST_F(LostDeviceTest, AVerifierTellsALostDeviceFromAFailedPass) {
  VerifierShared shared(model_.get());
  VerifierSession session(model_.get(), nullptr, &shared, MakeCudaJudge(model_->model()));
  v1::VerifierCommand attach;
  *attach.mutable_attach() = testing::AttachWith(2);
  ASSERT_TRUE(Call<v1::VerifierReply>(session, attach).has_attach());
  testing::TinySequence sequence(kPrompt, Greedy());
  const auto verify = [&] {
    v1::VerifierCommand command;
    *command.mutable_verify()->add_items() = sequence.NextVerify({});
    return Call<v1::VerifierReply>(session, command).verify().results(0).state().code();
  };
  EXPECT_EQ(verify(), v1::WORKER_CODE_OK);
  simt::FailCall(kCallOfThePass, cudaErrorIllegalAddress);
  EXPECT_EQ(verify(), v1::WORKER_CODE_INTERNAL);
  EXPECT_TRUE(losses_.empty());
  EXPECT_EQ(verify(), v1::WORKER_CODE_OK);
  simt::LoseDevice(kCallOfThePass);
  EXPECT_EQ(verify(), v1::WORKER_CODE_INTERNAL);
  ASSERT_EQ(losses_.size(), 1u);
  EXPECT_THAT(losses_[0], HasSubstr("cudaErrorIllegalAddress"));
}

TEST_F(LostDeviceTest, ADrafterTellsALostDeviceFromAFailedPass) {
  DrafterSession session(model_.get(), MakeCudaProposer(model_->model()));
  v1::DraftCommand attach;
  *attach.mutable_attach() = testing::AttachWith(2);
  ASSERT_TRUE(Call<v1::DraftReply>(session, attach).has_attach());
  testing::TinySequence sequence(kPrompt, Greedy());
  const auto propose = [&] {
    v1::DraftCommand command;
    *command.mutable_propose()->add_items() = sequence.NextPropose(2);
    return Call<v1::DraftReply>(session, command).propose().results(0).state().code();
  };
  EXPECT_EQ(propose(), v1::WORKER_CODE_OK);
  simt::FailCall(kCallOfThePass, cudaErrorIllegalAddress);
  EXPECT_EQ(propose(), v1::WORKER_CODE_INTERNAL);
  EXPECT_TRUE(losses_.empty());
  EXPECT_EQ(propose(), v1::WORKER_CODE_OK);
  simt::LoseDevice(kCallOfThePass);
  EXPECT_EQ(propose(), v1::WORKER_CODE_INTERNAL);
  ASSERT_EQ(losses_.size(), 1u);
  EXPECT_THAT(losses_[0], HasSubstr("cudaErrorIllegalAddress"));
}

TEST_F(LostDeviceTest, ACommandThatFailsAsAWholeShowsALostDeviceToo) {
  VerifierShared shared(model_.get());
  VerifierSession session(model_.get(), nullptr, &shared, MakeCudaJudge(model_->model()));
  v1::VerifierCommand attach;
  *attach.mutable_attach() = testing::AttachWith(2);
  ASSERT_TRUE(Call<v1::VerifierReply>(session, attach).has_attach());
  simt::LoseDevice(0);
  v1::VerifierCommand confirm;
  confirm.mutable_confirm_ring()->set_ring_epoch(1);
  EXPECT_TRUE(Call<v1::VerifierReply>(session, confirm).has_error());
  EXPECT_EQ(losses_.size(), 1u);
}

}  // namespace
}  // namespace tandem
