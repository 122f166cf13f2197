#include "services/draft/cuda_proposer.h"

#include <algorithm>

#include "common/rpc/protocol.h"
#include "common/status.h"

namespace tandem {
namespace {

constexpr size_t kMaxRows = DeviceSampler::kMaxRows;
constexpr size_t kMaxDrafts = DeviceSampler::kMaxDrafts;
static_assert(kMaxDraftLength <= kMaxDrafts && kMaxSiblings <= DeviceSampler::kMaxSiblings);
constexpr size_t kPlane = kMaxRows * kMaxDrafts;  // ids of the record for each rank of siblings

// Returns how many tasks of the group draft a token in pass `pass`. These tasks come first.
size_t NumDrafting(std::span<DraftTask* const> group, size_t pass) {
  return static_cast<size_t>(
      std::find_if(group.begin(), group.end(),
                   [&](const DraftTask* task) { return task->draft_length <= pass; }) -
      group.begin());
}

// Returns the number of siblings that a task draws before a position.
size_t SiblingsBefore(const DraftTask& task, size_t position) {
  size_t count = 0;
  for (size_t i = 0; i < position; ++i) count += task.NumSiblings(i);
  return count;
}

}  // namespace

absl::Status CudaProposer::Run(std::span<DraftTask> tasks) {
  TANDEM_RETURN_IF_ERROR(model_->Select());
  if (record_.data() == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(started_, DeviceEvent::Create(/*timed=*/true));
    TANDEM_ASSIGN_OR_RETURN(caught_up_, DeviceEvent::Create(/*timed=*/true));
    TANDEM_ASSIGN_OR_RETURN(record_, PinnedMemory::Create((1 + DeviceSampler::kMaxSiblings) *
                                                          kPlane * sizeof(int32_t)));
  }
  catch_up_seconds_ = 0;
  std::vector<DraftTask*> batch;
  for (DraftTask& task : tasks) {
    if (!task.token_ids.empty()) batch.push_back(&task);
  }
  std::stable_sort(batch.begin(), batch.end(), [](const DraftTask* a, const DraftTask* b) {
    return a->draft_length > b->draft_length;
  });
  for (size_t begin = 0; begin < batch.size(); begin += kMaxRows) {
    TANDEM_RETURN_IF_ERROR(
        RunGroup(std::span(batch).subspan(begin, std::min(kMaxRows, batch.size() - begin))));
  }
  return absl::OkStatus();
}

absl::Status CudaProposer::RunGroup(std::span<DraftTask* const> group) {
  const absl::Status enqueued = Enqueue(group);
  // After a failure too, no copy to the ring's rows may still be pending.
  const absl::Status done = model_->stream().Wait();
  TANDEM_RETURN_IF_ERROR(enqueued);
  TANDEM_RETURN_IF_ERROR(done);
  Read(group.first(NumDrafting(group, 0)));
  TANDEM_ASSIGN_OR_RETURN(const double seconds, caught_up_.SecondsSince(started_));
  catch_up_seconds_ += seconds;
  return absl::OkStatus();
}

absl::Status CudaProposer::Enqueue(std::span<DraftTask* const> group) {
  const DeviceStream& stream = model_->stream();
  TANDEM_RETURN_IF_ERROR(started_.Record(stream));
  std::vector<ForwardItem> items;
  for (const DraftTask* task : group) {
    items.push_back({.cache = task->slot->cache(),
                     .token_ids = task->token_ids,
                     .parents = {},
                     .num_logits = task->draft_length > 0 ? size_t{1} : size_t{0}});
  }
  TANDEM_ASSIGN_OR_RETURN(DeviceLogits logits, model_->ForwardOnDevice(items));
  for (const DraftTask* task : group) task->slot->Append(task->token_ids);
  const std::span<DraftTask* const> drafting = group.first(NumDrafting(group, 0));
  if (drafting.empty()) return caught_up_.Record(stream);

  TANDEM_ASSIGN_OR_RETURN(const std::vector<PassRows> passes, TellSampler(drafting));
  constexpr int32_t kAnyToken = 0;  // not used: the device has the ids
  size_t num_siblings = 0;          // the largest number for one token
  for (size_t pass = 0; pass < passes.size(); ++pass) {
    const size_t rows = passes[pass].front().count;
    if (pass > 0) {
      items.clear();
      for (size_t i = 0; i < rows; ++i) {
        items.push_back({.cache = drafting[i]->slot->cache(),
                         .token_ids = std::span(&kAnyToken, 1),
                         .parents = {},
                         .num_logits = 1});
      }
      TANDEM_ASSIGN_OR_RETURN(logits,
                              model_->ForwardOnDevice(items, model_->sampler().memory().fed));
    }
    TANDEM_RETURN_IF_ERROR(EnqueueDraws(drafting, pass, passes[pass], logits));
    num_siblings = std::max(num_siblings, passes[pass].size() - 1);
    if (pass == 0) TANDEM_RETURN_IF_ERROR(caught_up_.Record(stream));
  }
  for (size_t sibling = 0; sibling <= num_siblings; ++sibling) {
    TANDEM_RETURN_IF_ERROR(stream.Copy(static_cast<int32_t*>(record_.data()) + sibling * kPlane,
                                       model_->sampler().memory().record + sibling * kPlane,
                                       drafting.size() * kMaxDrafts * sizeof(int32_t)));
  }
  return absl::OkStatus();
}

absl::Status CudaProposer::EnqueueDraws(std::span<DraftTask* const> drafting, size_t pass,
                                        const PassRows& rows, const DeviceLogits& logits) {
  const DeviceStream& stream = model_->stream();
  const DeviceSampler& sampler = model_->sampler();
  const DeviceSampler::Memory& memory = sampler.memory();
  const size_t vocabulary_size = model_->description().vocabulary_size;
  for (size_t sibling = 0; sibling < rows.size(); ++sibling) {
    const bool is_fed = sibling == 0;
    TANDEM_RETURN_IF_ERROR(is_fed ? sampler.Draw(rows[0], logits)
                                  : sampler.DrawSiblings(rows[sibling], logits.stride));
    TANDEM_RETURN_IF_ERROR(KeepDrafts({.rows = rows[sibling].count,
                                       .pass = pass,
                                       .stride = kMaxDrafts,
                                       .drawn = memory.token_ids,
                                       .fed = is_fed ? memory.fed : nullptr,
                                       .drafts = is_fed ? memory.drafts : nullptr,
                                       .record = memory.record + sibling * kPlane},
                                      stream.get()));
    for (size_t i = 0; i < rows[sibling].count; ++i) {
      const DraftTask& task = *drafting[i];
      if (task.draft_log_probs.empty() || sibling > task.NumSiblings(pass)) continue;
      const size_t place =
          is_fed ? pass : task.draft_length + SiblingsBefore(task, pass) + sibling - 1;
      const std::span<float> row =
          task.draft_log_probs.subspan(place * vocabulary_size, vocabulary_size);
      TANDEM_RETURN_IF_ERROR(
          stream.Copy(row.data(), memory.values + i * logits.stride, row.size_bytes()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CudaProposer::PassRows>> CudaProposer::TellSampler(
    std::span<DraftTask* const> drafting) {
  DeviceSampler& sampler = model_->sampler();
  TANDEM_RETURN_IF_ERROR(sampler.Begin());
  for (size_t i = 0; i < drafting.size(); ++i) {
    Slot& slot = *drafting[i]->slot;
    TANDEM_RETURN_IF_ERROR(sampler
                               .AddContext({.params = &slot.params(),
                                            .counts = slot.counts(),
                                            .num_output_tokens = slot.num_output_tokens(),
                                            .position = slot.length(),
                                            .drafts = sampler.memory().drafts + i * kMaxDrafts,
                                            .drafter = drafting[i]->drafter})
                               .status());
  }
  std::vector<PassRows> passes;
  std::vector<DeviceSampler::Row> rows;
  for (size_t pass = 0; pass < drafting.front()->draft_length; ++pass) {
    const std::span<DraftTask* const> drawing = drafting.first(NumDrafting(drafting, pass));
    size_t num_siblings = 0;
    for (const DraftTask* task : drawing) {
      num_siblings = std::max(num_siblings, task->NumSiblings(pass));
    }
    PassRows& added = passes.emplace_back();
    for (size_t sibling = 0; sibling <= num_siblings; ++sibling) {
      rows.clear();
      for (size_t i = 0; i < drawing.size(); ++i) {
        const bool is_drawn = sibling <= drawing[i]->NumSiblings(pass);
        rows.push_back(
            {.context = i,
             .num_earlier = static_cast<int32_t>(pass),
             .how = is_drawn ? DeviceSampler::DrawOf(drawing[i]->slot->params()) : RowDraw::kNone,
             .sibling = static_cast<uint8_t>(sibling)});
      }
      TANDEM_ASSIGN_OR_RETURN(const DeviceSampler::Rows of_siblings, sampler.AddRows(rows));
      added.push_back(of_siblings);
    }
  }
  TANDEM_RETURN_IF_ERROR(sampler.Send());
  return passes;
}

void CudaProposer::Read(std::span<DraftTask* const> drafting) const {
  const auto* const record = static_cast<const int32_t*>(record_.data());
  for (size_t i = 0; i < drafting.size(); ++i) {
    DraftTask& task = *drafting[i];
    const std::span<const int32_t> drawn(record + i * kMaxDrafts, task.draft_length);
    // The ids after a row that was not finite have no meaning.
    const auto end =
        std::find_if(drawn.begin(), drawn.end(), [](int32_t token_id) { return token_id < 0; });
    task.draft_token_ids.assign(drawn.begin(), end);
    const size_t num_fed = std::min(task.draft_token_ids.size(), task.draft_length - 1);
    task.slot->Append(std::span(task.draft_token_ids).first(num_fed));
    for (size_t pass = 0; pass < task.draft_token_ids.size(); ++pass) {
      for (size_t sibling = 1; sibling <= task.NumSiblings(pass); ++sibling) {
        task.sibling_token_ids.push_back(record[sibling * kPlane + i * kMaxDrafts + pass]);
      }
    }
  }
}

std::unique_ptr<Proposer> MakeCudaProposer(LanguageModel& model) {
  auto* const on_gpu = dynamic_cast<CudaModel*>(&model);
  return on_gpu == nullptr ? nullptr : std::make_unique<CudaProposer>(on_gpu);
}

}  // namespace tandem
