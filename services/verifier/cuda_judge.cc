#include "services/verifier/cuda_judge.h"

#include <utility>

#include "common/rpc/protocol.h"
#include "common/status.h"

namespace tandem {
namespace {

constexpr size_t kJudgeRows = DeviceSampler::kMaxRows;
static_assert(kMaxDraftDepth == kMaxDraftLength);
static_assert(kMaxDraftTokens == kMaxTreeNodes && kMaxDraftLength <= kMaxTreeNodes);
static_assert(kMaxTreeNodes + 1 <= kJudgeRows, "the rows of one slot fit into a group");

TokenLogProbs LogProbsOf(const DeviceReport& report) {
  return {.log_prob = report.log_prob, .top = {report.top, report.top + report.num_top}};
}

}  // namespace

absl::Status CudaJudge::Run(std::span<JudgeTask> tasks) {
  TANDEM_RETURN_IF_ERROR(model_->Select());
  if (reports_.data() == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(verdicts_, PinnedMemory::Create(kJudgeRows * sizeof(DeviceVerdict)));
    TANDEM_ASSIGN_OR_RETURN(reports_, PinnedMemory::Create(kJudgeRows * sizeof(DeviceReport)));
  }
  for (size_t begin = 0; begin < tasks.size();) {
    size_t end = begin;
    for (size_t rows = 0; end < tasks.size(); ++end) {
      rows += tasks[end].num_logits();
      if (rows > kJudgeRows || (end > begin && tasks[end].num_scored > 0)) break;
      if (tasks[end].num_scored > 0) {
        ++end;
        break;
      }
    }
    TANDEM_RETURN_IF_ERROR(RunGroup(tasks.subspan(begin, end - begin)));
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status CudaJudge::RunGroup(std::span<JudgeTask> group) {
  Batch batch;
  const absl::Status enqueued = Enqueue(group, batch);
  // After a failure too, no read of the ring's rows may still be pending.
  const absl::Status done = model_->stream().Wait();
  TANDEM_RETURN_IF_ERROR(enqueued);
  TANDEM_RETURN_IF_ERROR(done);
  return Read(group, batch);
}

absl::Status CudaJudge::Enqueue(std::span<JudgeTask> group, Batch& batch) {
  const DeviceStream& stream = model_->stream();
  DeviceSampler& sampler = model_->sampler();
  const DeviceSampler::Memory& memory = sampler.memory();
  std::vector<std::vector<int32_t>> fed;
  const std::vector<ForwardItem> items = ItemsOf(group, &fed);
  TANDEM_ASSIGN_OR_RETURN(DeviceLogits logits, model_->ForwardOnDevice(items));
  for (JudgeTask& task : group) {
    const size_t length_before = task.slot->length();
    if (task.num_scored > 0) batch.scored_length_before = length_before;
    task.slot->Append(task.token_ids);
    if (!task.sample) continue;
    batch.sampled.push_back(&task);
    batch.lengths_before.push_back(length_before);
  }
  if (const JudgeTask& first = group.front(); first.num_scored > 0) {
    TANDEM_RETURN_IF_ERROR(FetchScored(logits, first.num_scored));
    batch.num_scored = first.num_logits() - first.num_judged();
    logits.data += batch.num_scored * logits.stride;
    logits.rows -= batch.num_scored;
  }
  if (batch.sampled.empty()) return absl::OkStatus();

  TANDEM_RETURN_IF_ERROR(sampler.Begin());
  TANDEM_RETURN_IF_ERROR(TellSampler(batch));
  TANDEM_ASSIGN_OR_RETURN(const DeviceSampler::Rows rows, sampler.AddRows(batch.rows));
  TANDEM_ASSIGN_OR_RETURN(const BlockToVerify* const blocks,
                          sampler.Put(std::span<const BlockToVerify>(batch.blocks)));
  TANDEM_ASSIGN_OR_RETURN(const ReportToMake* const wanted,
                          sampler.Put(std::span<const ReportToMake>(batch.wanted)));
  TANDEM_ASSIGN_OR_RETURN(const int32_t* const block_of_row,
                          sampler.Put(std::span<const int32_t>(batch.block_of_row)));
  TANDEM_RETURN_IF_ERROR(sampler.Send());
  TANDEM_RETURN_IF_ERROR(sampler.Draw(rows, logits));
  const DeviceVerifyArgs verify = {.num_blocks = batch.blocks.size(),
                                   .vocabulary_size = model_->description().vocabulary_size,
                                   .stride = logits.stride,
                                   .blocks = blocks,
                                   .values = memory.values,
                                   .not_finite = memory.not_finite,
                                   .row_token_ids = memory.token_ids,
                                   .verdicts = memory.verdicts};
  TANDEM_RETURN_IF_ERROR(AcceptRejectBlocks(verify, stream.get()));
  TANDEM_RETURN_IF_ERROR(
      stream.Copy(verdicts_.data(), memory.verdicts, batch.blocks.size() * sizeof(DeviceVerdict)));
  if (!batch.any_reports) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(MakeReports({.verify = verify,
                                      .logits = logits.data,
                                      .rows = batch.rows.size(),
                                      .block_of_row = block_of_row,
                                      .wanted = wanted,
                                      .reports = memory.reports},
                                     stream.get()));
  return stream.Copy(reports_.data(), memory.reports, batch.rows.size() * sizeof(DeviceReport));
}

absl::Status CudaJudge::FetchScored(const DeviceLogits& logits, size_t num_scored) {
  if (scored_.data() == nullptr || scored_stride_ != logits.stride) {
    TANDEM_ASSIGN_OR_RETURN(scored_,
                            PinnedMemory::Create(kMaxScoredRows * logits.stride * sizeof(float)));
    scored_stride_ = logits.stride;
  }
  return model_->stream().Copy(scored_.data(), logits.data,
                               num_scored * logits.stride * sizeof(float));
}

absl::Status CudaJudge::TellSampler(Batch& batch) {
  DeviceSampler& sampler = model_->sampler();
  const size_t vocabulary_size = model_->description().vocabulary_size;
  float* draft_row = sampler.memory().draft_rows;
  for (const JudgeTask* task : batch.sampled) {
    Slot& slot = *task->slot;
    const SamplingParams& params = slot.params();
    const std::span<const int32_t> drafts = task->draft_token_ids;
    BlockToVerify block = {
        .first_row = static_cast<int32_t>(batch.rows.size()),
        .num_drafted = static_cast<int32_t>(drafts.size()),
        .how = DrawOfBlock(params, task->draft_log_probs != nullptr),
        .lenience = params.lenience,
        .key = {.seed = params.seed, .position = slot.length(), .drafter = task->drafter}};
    TANDEM_ASSIGN_OR_RETURN(block.draft_token_ids, sampler.Put(drafts));
    if (!task->draft_parents.empty()) {
      TANDEM_ASSIGN_OR_RETURN(block.draft_parents, sampler.Put(task->draft_parents));
    }
    if (task->draft_log_probs != nullptr && block.how == RowDraw::kPlain) {
      const size_t floats = drafts.size() * vocabulary_size;
      TANDEM_RETURN_IF_ERROR(
          model_->stream().Copy(draft_row, task->draft_log_probs, floats * sizeof(float)));
      block.draft_log_probs = draft_row;
      draft_row += floats;
    }
    TANDEM_ASSIGN_OR_RETURN(const size_t context,
                            sampler.AddContext({.params = &params,
                                                .counts = slot.counts(),
                                                .num_output_tokens = slot.num_output_tokens(),
                                                .position = slot.length(),
                                                .drafts = block.draft_token_ids}));
    // AcceptRejectBlocks draws the tokens of accept/reject.
    const RowDraw how = block.how == RowDraw::kPlain ? RowDraw::kNone : block.how;
    TANDEM_RETURN_IF_ERROR(AddRows(*task, context, how, batch));
    batch.blocks.push_back(block);
    const ReportToMake wanted = {.audit = params.audit && params.plain_sampling(),
                                 .num_logprobs = params.num_top()};
    batch.wanted.push_back(wanted);
    batch.any_reports |= wanted.audit || wanted.num_logprobs >= 0;
  }
  return absl::OkStatus();
}

absl::Status CudaJudge::AddRows(const JudgeTask& task, size_t context, RowDraw how, Batch& batch) {
  const std::span<const int32_t> drafts = task.draft_token_ids;
  const bool is_tree = !task.draft_parents.empty();
  const bool has_own_lists = is_tree && HasPenalties(task.slot->params());
  batch.block_of_row.insert(batch.block_of_row.end(), drafts.size() + 1,
                            static_cast<int32_t>(batch.blocks.size()));
  batch.rows.push_back({.context = context, .how = how});
  std::vector<std::vector<int32_t>> paths;  // for each draft token, the tokens that lead to it
  for (size_t i = 0; i < drafts.size(); ++i) {
    if (!is_tree) {
      batch.rows.push_back(
          {.context = context, .num_earlier = static_cast<int32_t>(i) + 1, .how = how});
      continue;
    }
    const int32_t parent = task.draft_parents[i];
    std::vector<int32_t> path = parent < 0 ? std::vector<int32_t>() : paths[parent];
    path.push_back(drafts[i]);
    DeviceSampler::Row row = {
        .context = context, .num_earlier = static_cast<int32_t>(path.size()), .how = how};
    if (has_own_lists) {
      TANDEM_ASSIGN_OR_RETURN(row.earlier, model_->sampler().Put(std::span<const int32_t>(path)));
    }
    batch.rows.push_back(row);
    paths.push_back(std::move(path));
  }
  return absl::OkStatus();
}

bool CudaJudge::ReadScores(const Batch& batch, JudgeTask& task) const {
  const LogitsView logits = {static_cast<const float*>(scored_.data()), scored_stride_,
                             task.num_scored};
  if (Score(logits, model_->description().vocabulary_size, task)) return true;
  task.verdict.finite = false;
  task.slot->TruncateTo(batch.scored_length_before);
  return false;
}

absl::Status CudaJudge::Read(std::span<JudgeTask> group, const Batch& batch) const {
  if (group.front().num_scored > 0 && !ReadScores(batch, group.front())) return absl::OkStatus();
  const auto* const verdicts = static_cast<const DeviceVerdict*>(verdicts_.data());
  const auto* const reports = static_cast<const DeviceReport*>(reports_.data());
  for (size_t i = 0; i < batch.sampled.size(); ++i) {
    JudgeTask& task = *batch.sampled[i];
    Slot& slot = *task.slot;
    const DeviceVerdict& verdict = verdicts[i];
    task.verdict = {.finite = verdict.finite != 0,
                    .path = {verdict.path, verdict.path + verdict.num_accepted},
                    .next_token_id = verdict.next_token_id,
                    .log_probs = {},
                    .audit = {}};
    task.drafts_valid = verdict.drafts_valid != 0;
    if (!task.verdict.finite) {
      slot.TruncateTo(batch.lengths_before[i]);
      continue;
    }
    if (task.feature_place.has_value()) {
      const auto first_row = static_cast<size_t>(batch.blocks[i].first_row);
      model_->self_drafter()->KeepFeature(*task.feature_place,
                                          batch.num_scored + first_row + task.newest_row());
    }
    const DeviceReport* const first = reports + batch.blocks[i].first_row;
    for (int32_t step = 0; step <= verdict.num_accepted; ++step) {
      if (batch.wanted[i].num_logprobs >= 0) {
        task.verdict.log_probs.push_back(LogProbsOf(first[step]));
      }
      if (batch.wanted[i].audit) task.verdict.audit.push_back(first[step].audit);
    }
    TANDEM_RETURN_IF_ERROR(slot.KeepPath(task.draft_token_ids, task.verdict.path));
  }
  return absl::OkStatus();
}

std::unique_ptr<Judge> MakeCudaJudge(LanguageModel& model) {
  auto* const on_gpu = dynamic_cast<CudaModel*>(&model);
  return on_gpu == nullptr ? nullptr : std::make_unique<CudaJudge>(on_gpu);
}

}  // namespace tandem
