#include "services/router/engine/pod_output.h"

#include <utility>

namespace tandem {

void PodOutput::Log(LogLine::Level level, std::string text, std::string summary) {
  commands.push_back(
      LogLine{.level = level, .text = std::move(text), .summary = std::move(summary)});
}

void PodOutput::LogSlot(const Slots& slots, LogLine::Level level, uint32_t slot_id,
                        std::string text, std::string summary, PeerId peer) {
  commands.push_back(LogLine{.level = level,
                             .text = std::move(text),
                             .request_id = slots[slot_id].sequence->request.request_id,
                             .slot = slot_id,
                             .epoch = slots.peer(peer).slot(slot_id).epoch,
                             .summary = std::move(summary)});
}

void PodOutput::ReportFinished(std::unique_ptr<Sequence> sequence, const absl::Status& status) {
  reports.push_back({PodReport::Kind::kFinished, std::move(sequence), status});
}

void PodOutput::ReportPreempted(std::unique_ptr<Sequence> sequence) {
  commands.push_back(LogLine{.level = LogLine::Level::kDebug,
                             .text = sequence->is_replay()
                                         ? "replay of the audit: gives its slot up"
                                         : "preempted: others need its pages",
                             .request_id = sequence->request.request_id,
                             .slot = sequence->last_slot->slot,
                             .epoch = sequence->last_slot->epoch});
  if (!sequence->is_replay()) ++counts.preemptions;
  reports.push_back({PodReport::Kind::kPreempted, std::move(sequence)});
}

void PodOutput::ReportPrompt(const PromptDeaths& prompt) {
  reports.push_back({.kind = PodReport::Kind::kPrompt, .sequence = nullptr, .prompt = prompt});
}

}  // namespace tandem
