#include "common/model/cuda/device_sampler.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr size_t kAlignment = 16;  // alignment of each staged value

}  // namespace

absl::Status DeviceSampler::LayOut(const MemoryTaker& take) {
  TANDEM_RETURN_IF_ERROR(
      take(&memory_.values, kMaxRows * sizes_.logits_stride, "log-probabilities"));
  TANDEM_RETURN_IF_ERROR(take(&memory_.not_finite, kMaxRows, "row states"));
  TANDEM_RETURN_IF_ERROR(take(&memory_.token_ids, kMaxRows, "drawn tokens"));
  TANDEM_RETURN_IF_ERROR(
      take(&memory_.counts, sizes_.max_contexts * sizes_.vocabulary_size, "token counts"));
  TANDEM_RETURN_IF_ERROR(take(&memory_.staged, staging_bytes(), "sampling parameters"));
  TANDEM_RETURN_IF_ERROR(take(&memory_.fed, kMaxRows, "drawn tokens"));
  TANDEM_RETURN_IF_ERROR(take(&memory_.drafts, kMaxRows * kMaxDrafts, "drawn tokens"));
  TANDEM_RETURN_IF_ERROR(
      take(&memory_.record, (1 + kMaxSiblings) * kMaxRows * kMaxDrafts, "drawn tokens"));
  if (!sizes_.judges) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(
      take(&memory_.draft_rows, kMaxRows * sizes_.vocabulary_size, "draft log-probabilities"));
  TANDEM_RETURN_IF_ERROR(take(&memory_.verdicts, kMaxRows, "verdicts"));
  return take(&memory_.reports, kMaxRows, "reports");
}

absl::Status DeviceSampler::Start(const DeviceStream* stream) {
  stream_ = stream;
  TANDEM_ASSIGN_OR_RETURN(staging_, PinnedMemory::Create(staging_bytes()));
  TANDEM_ASSIGN_OR_RETURN(fetched_, DeviceEvent::Create());
  return absl::OkStatus();
}

absl::Status DeviceSampler::Begin() {
  num_staged_ = 0;
  contexts_.clear();
  to_count_.clear();
  return fetched_.Wait();
}

absl::StatusOr<size_t> DeviceSampler::Stage(const void* data, size_t bytes) {
  const size_t offset = (num_staged_ + kAlignment - 1) / kAlignment * kAlignment;
  if (offset + bytes > staging_.size()) {
    return ResourceExhausted(
        absl::StrCat("sampling parameters of a batch take more than ", staging_.size(), " bytes"));
  }
  if (bytes > 0) std::memcpy(static_cast<std::byte*>(staging_.data()) + offset, data, bytes);
  num_staged_ = offset + bytes;
  return offset;
}

absl::StatusOr<size_t> DeviceSampler::AddContext(const Context& context) {
  const SamplingParams& params = *context.params;
  const size_t index = contexts_.size();
  if (index == sizes_.max_contexts) {
    return ResourceExhausted(
        absl::StrCat("a batch of more than ", sizes_.max_contexts, " slots that draw tokens"));
  }
  KnownContext known = {.context = context, .adjustment = {}};
  RowAdjustment& adjustment = known.adjustment;
  if (HasPenalties(params)) {
    adjustment.repetition_penalty = params.repetition_penalty;
    adjustment.presence_penalty = params.presence_penalty;
    adjustment.frequency_penalty = params.frequency_penalty;
    adjustment.earlier = context.drafts;
    uint32_t* const counts = memory_.counts + index * sizes_.vocabulary_size;
    adjustment.counts = counts;
    TANDEM_RETURN_IF_ERROR(CountContext(*context.counts, counts));
  }
  if (!params.logit_bias.empty()) {
    std::vector<int32_t> ids;
    std::vector<float> biases;
    for (const auto& [id, bias] : params.logit_bias) {
      ids.push_back(id);
      biases.push_back(bias);
    }
    adjustment.num_biases = static_cast<int32_t>(ids.size());
    TANDEM_ASSIGN_OR_RETURN(adjustment.bias_token_ids, Put(std::span<const int32_t>(ids)));
    TANDEM_ASSIGN_OR_RETURN(adjustment.biases, Put(std::span<const float>(biases)));
  }
  const std::span<const int32_t> held_back =
      HeldBack(params, context.num_output_tokens, sizes_.vocabulary_size);
  known.num_held_back = static_cast<int32_t>(held_back.size());
  TANDEM_ASSIGN_OR_RETURN(adjustment.held_back_token_ids, Put(held_back));
  contexts_.push_back(known);
  return index;
}

absl::Status DeviceSampler::CountContext(const TokenCounts& counts, uint32_t* device_counts) {
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
  for (const auto& [id, count] : counts.counts()) {
    if (count.prompt > 0) prompt.push_back(id);
    output.insert(output.end(), static_cast<size_t>(count.output), id);
  }
  for (const auto& [ids, is_output] : {std::pair(&prompt, false), std::pair(&output, true)}) {
    TANDEM_ASSIGN_OR_RETURN(const int32_t* const token_ids, Put(std::span<const int32_t>(*ids)));
    to_count_.push_back({device_counts, token_ids, ids->size(), is_output});
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceSampler::Rows> DeviceSampler::AddRows(std::span<const Row> rows) {
  if (rows.size() > kMaxRows) {
    return ResourceExhausted(absl::StrCat("a batch of ", rows.size(),
                                          " rows that draw tokens (at most ", kMaxRows, ")"));
  }
  std::vector<RowAdjustment> adjustments;
  std::vector<RowSampling> sampling;
  std::vector<RowToDraw> draws;
  Rows added = {.count = rows.size()};
  for (const Row& row : rows) {
    const KnownContext& known = contexts_[row.context];
    const SamplingParams& params = *known.context.params;
    RowAdjustment adjustment = known.adjustment;
    adjustment.num_earlier = adjustment.counts != nullptr ? row.num_earlier : 0;
    if (row.earlier != nullptr) adjustment.earlier = row.earlier;
    const bool holds_back = known.context.num_output_tokens + row.num_earlier < params.min_tokens;
    adjustment.num_held_back = holds_back ? known.num_held_back : 0;
    adjustments.push_back(adjustment);
    sampling.push_back({params.temperature, params.top_p, params.top_k, params.min_p});
    draws.push_back({row.how,
                     {.seed = params.seed,
                      .position = known.context.position + static_cast<uint64_t>(row.num_earlier),
                      .drafter = known.context.drafter,
                      .sibling = row.sibling}});
    added.any_sampled |= !params.greedy();
    added.any_drawn |= row.how != RowDraw::kNone;
  }
  TANDEM_ASSIGN_OR_RETURN(added.adjustments, Put(std::span<const RowAdjustment>(adjustments)));
  TANDEM_ASSIGN_OR_RETURN(added.sampling, Put(std::span<const RowSampling>(sampling)));
  TANDEM_ASSIGN_OR_RETURN(added.draws, Put(std::span<const RowToDraw>(draws)));
  return added;
}

absl::Status DeviceSampler::Send() {
  TANDEM_RETURN_IF_ERROR(stream_->Copy(memory_.staged, staging_.data(), num_staged_));
  TANDEM_RETURN_IF_ERROR(fetched_.Record(*stream_));
  for (const CountList& list : to_count_) {
    // A context's two lists follow each other, and the prompt's list comes first.
    if (!list.is_output) {
      TANDEM_RETURN_IF_ERROR(
          stream_->Clear(list.counts, sizes_.vocabulary_size * sizeof(*list.counts)));
    }
    TANDEM_RETURN_IF_ERROR(CountTokens({.count = list.count,
                                        .token_ids = list.token_ids,
                                        .is_output = list.is_output,
                                        .counts = list.counts},
                                       stream_->get()));
  }
  return absl::OkStatus();
}

absl::Status DeviceSampler::Draw(const Rows& rows, const DeviceLogits& logits) const {
  TANDEM_RETURN_IF_ERROR(AdjustLogits({.rows = rows.count,
                                       .vocabulary_size = sizes_.vocabulary_size,
                                       .stride = logits.stride,
                                       .adjustments = rows.adjustments,
                                       .logits = logits.data,
                                       .adjusted = memory_.values,
                                       .not_finite = memory_.not_finite},
                                      stream_->get()));
  if (rows.any_sampled) {
    TANDEM_RETURN_IF_ERROR(LogProbs({.rows = rows.count,
                                     .vocabulary_size = sizes_.vocabulary_size,
                                     .stride = logits.stride,
                                     .params = rows.sampling,
                                     .adjusted = memory_.values,
                                     .log_probs = memory_.values},
                                    stream_->get()));
  }
  return rows.any_drawn ? DrawTokensOf(rows, logits.stride) : absl::OkStatus();
}

absl::Status DeviceSampler::DrawSiblings(const Rows& rows, size_t stride) const {
  TANDEM_RETURN_IF_ERROR(LeaveOutTokens({.rows = rows.count,
                                         .vocabulary_size = sizes_.vocabulary_size,
                                         .stride = stride,
                                         .draws = rows.draws,
                                         .values = memory_.values,
                                         .token_ids = memory_.token_ids},
                                        stream_->get()));
  return DrawTokensOf(rows, stride);
}

absl::Status DeviceSampler::DrawTokensOf(const Rows& rows, size_t stride) const {
  return DrawTokens({.rows = rows.count,
                     .vocabulary_size = sizes_.vocabulary_size,
                     .stride = stride,
                     .draws = rows.draws,
                     .values = memory_.values,
                     .not_finite = memory_.not_finite,
                     .token_ids = memory_.token_ids},
                    stream_->get());
}

}  // namespace tandem
