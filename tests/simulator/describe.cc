#include "tests/simulator/describe.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::simulator {
namespace {

std::string Ring(const v1::RingReference& ring) {
  return absl::StrCat(" ring ", ring.ring_epoch(), "/", ring.entry(), "/", ring.sequence());
}

std::string Point(const v1::SlotPoint& at, bool opens) {
  return absl::StrCat(" [slot ", at.slot(), opens ? " opens epoch " : " epoch ", at.slot_epoch(),
                      " #", at.command_number(), " len ", at.length());
}

std::string Updates(const v1::UpdateSlots& update) {
  std::string text;
  for (const v1::SlotPoint& at : update.rollbacks()) {
    absl::StrAppend(&text, " roll back", Point(at, false), "]");
  }
  for (const v1::SlotClose& close : update.closes()) {
    absl::StrAppend(&text, " close ", close.slot(), "/", close.slot_epoch());
  }
  return text;
}

std::string State(const v1::SlotState& state) {
  std::string text = absl::StrCat(" [slot ", state.slot(), " epoch ", state.slot_epoch(), " #",
                                  state.command_number(), " holds ", state.cached_len());
  if (state.code() != v1::WORKER_CODE_OK) {
    absl::StrAppend(&text, " ", v1::WorkerCode_Name(state.code()), " ", state.message());
  }
  return text;
}

std::string Ids(const google::protobuf::RepeatedField<int32_t>& ids) {
  return absl::StrCat("(", absl::StrJoin(ids, " "), ")");
}

std::string Describe(const v1::Propose& propose) {
  std::string text = "Propose" + Updates(propose.update_slots());
  for (const v1::ProposeItem& item : propose.items()) {
    absl::StrAppend(&text, Point(item.at(), item.has_open()), " + ", Ids(item.token_ids()),
                    " draft ", item.draft_length(), item.has_ring() ? Ring(item.ring()) : "", "]");
  }
  return text;
}

std::string Describe(const v1::Verify& verify) {
  std::string text = "Verify" + Updates(verify.update_slots());
  for (const v1::VerifyItem& item : verify.items()) {
    absl::StrAppend(&text, Point(item.at(), item.has_open()), " + ", Ids(item.token_ids()),
                    item.draft_token_ids().empty() ? "" : " judge " + Ids(item.draft_token_ids()),
                    item.has_ring() ? Ring(item.ring()) : "", item.sample() ? " sample]" : "]");
  }
  return text;
}

std::string Describe(const v1::ProposeReply& reply) {
  std::string text = absl::StrCat("Proposed, ", reply.num_free_pages(), " pages free");
  for (const v1::ProposeResult& result : reply.results()) {
    absl::StrAppend(&text, State(result.state()), " drafts ", Ids(result.draft_token_ids()), "]");
  }
  return text;
}

std::string Describe(const v1::VerifyReply& reply) {
  std::string text = absl::StrCat("Verified, ", reply.num_free_pages(), " pages free");
  for (const v1::VerifyResult& result : reply.results()) {
    absl::StrAppend(&text, State(result.state()), " accepts ", result.num_accepted(), " next ",
                    result.next_token_id(),
                    result.ring_error().empty() ? "" : " ring: ", result.ring_error(), "]");
  }
  return text;
}

template <typename Message>
std::string Shortly(const Message& message) {
  return message.ShortDebugString();
}

}  // namespace

std::string Describe(const WorkerCommand& command) {
  if (const auto* draft = std::get_if<v1::DraftCommand>(&command)) {
    const std::string text = draft->has_propose() ? Describe(draft->propose())
                             : draft->has_update_slots()
                                 ? "UpdateSlots" + Updates(draft->update_slots())
                                 : Shortly(*draft);
    return absl::StrCat(draft->id(), " ", text);
  }
  const auto& verifier = std::get<v1::VerifierCommand>(command);
  const std::string text =
      verifier.has_verify()           ? Describe(verifier.verify())
      : verifier.has_update_slots()   ? "UpdateSlots" + Updates(verifier.update_slots())
      : verifier.has_log_prob_chunk() ? "LogProbChunk" + Ring(verifier.log_prob_chunk().ring())
                                      : Shortly(verifier);
  return absl::StrCat(verifier.id(), " ", text);
}

std::string Describe(const WorkerReply& reply) {
  if (const auto* draft = std::get_if<v1::DraftReply>(&reply)) {
    const std::string text = draft->has_propose() ? Describe(draft->propose())
                             : draft->has_log_prob_chunk()
                                 ? "LogProbChunk" + Ring(draft->log_prob_chunk().ring())
                             : draft->has_attach()     ? "Attached"
                             : draft->has_vocabulary() ? "Vocabulary"
                                                       : Shortly(*draft);
    return absl::StrCat(draft->id(), " ", text);
  }
  const auto& verifier = std::get<v1::VerifierReply>(reply);
  const std::string text = verifier.has_verify()   ? Describe(verifier.verify())
                           : verifier.has_attach() ? "Attached"
                                                   : Shortly(verifier);
  return absl::StrCat(verifier.id(), " ", text);
}

std::string Describe(const v1::GenerateResponse& response) {
  return absl::StrCat(Ids(response.token_ids()), response.has_completion() ? " completion" : "");
}

}  // namespace tandem::simulator
