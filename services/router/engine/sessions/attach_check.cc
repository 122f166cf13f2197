#include "services/router/engine/sessions/attach_check.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/peer_text.h"
#include "common/rpc/protocol.h"
#include "common/status.h"

namespace tandem {
namespace {

// Returns true if both workers state the fingerprint of their weights and the fingerprints differ.
// A worker whose model was not made from files states none.
bool HaveOtherWeights(const v1::AttachReply& one, const v1::AttachReply& other) {
  return !one.model_fingerprint().empty() && !other.model_fingerprint().empty() &&
         one.model_fingerprint() != other.model_fingerprint();
}

std::string Quoted(const std::string& entry) {
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(Shortened(entry, kMaxQuotedBytes)), "\"");
}

absl::Status CheckServesRequests(const v1::AttachReply& reply, const Tokenizer& tokenizer) {
  const auto fingerprint = tokenizer.Fingerprint();
  if (reply.vocabulary_fingerprint() != std::string(fingerprint.begin(), fingerprint.end())) {
    return FailedPrecondition(
        "verifier: its vocabulary differs from the router's tokenizer.json (router and verifier "
        "must be given the same folder; check --target)");
  }
  if (reply.vocabulary_size() == 0 || reply.max_context_tokens() < 2 || reply.max_slots() == 0) {
    return FailedPrecondition(
        absl::StrCat("verifier: offers a vocabulary of ", reply.vocabulary_size(), ", ",
                     reply.max_context_tokens(), " context tokens and ", reply.max_slots(),
                     " slots: nothing can be served with that"));
  }
  return absl::OkStatus();
}

// Streams that are under way rely on what the verifier offered before.
absl::Status CheckCameBack(const v1::AttachReply& reply, const v1::AttachReply& before,
                           uint32_t max_slots) {
  if (reply.model() != before.model() || reply.vocabulary_size() != before.vocabulary_size() ||
      reply.max_context_tokens() < before.max_context_tokens() ||
      reply.max_slots() < std::min(max_slots, before.max_slots())) {
    return FailedPrecondition(absl::StrCat(
        "verifier: came back with model ", reply.model(), ", a vocabulary of ",
        reply.vocabulary_size(), ", ", reply.max_context_tokens(), " context tokens and ",
        reply.max_slots(), " slots: another model, or less than before (", before.model(), ", ",
        before.vocabulary_size(), ", ", before.max_context_tokens(), ", ", before.max_slots(),
        ")"));
  }
  if (HaveOtherWeights(reply, before)) {
    return FailedPrecondition(
        absl::StrCat("verifier: came back with other weights or constants of config.json than "
                     "before, in the name of ",
                     reply.model(), " (start the router again to serve them)"));
  }
  return absl::OkStatus();
}

// Streams may move between the pods of a router, so all pods must offer the same.
absl::Status CheckFitsOthers(const v1::AttachReply& reply, const v1::AttachReply& others) {
  if (reply.model() != others.model() || reply.vocabulary_size() != others.vocabulary_size() ||
      reply.max_context_tokens() < others.max_context_tokens()) {
    return FailedPrecondition(absl::StrCat(
        "verifier: serves model ", reply.model(), " with a vocabulary of ", reply.vocabulary_size(),
        " and ", reply.max_context_tokens(), " context tokens; the others serve ", others.model(),
        " with ", others.vocabulary_size(), " and ", others.max_context_tokens(),
        " (all pods of a router must serve one model, with no less context)"));
  }
  if (HaveOtherWeights(reply, others)) {
    return FailedPrecondition(
        absl::StrCat("verifier: its weights or constants of config.json are not those that the "
                     "others serve as ",
                     others.model(),
                     " (streams could not move between the two; give each version of a model a "
                     "name and routers of its own)"));
  }
  return absl::OkStatus();
}

absl::Status CheckProtocolVersion(Worker worker, const v1::AttachReply& reply) {
  if (reply.protocol_version() == kProtocolVersion) return absl::OkStatus();
  return FailedPrecondition(absl::StrCat(WorkerName(worker), ": speaks protocol version ",
                                         reply.protocol_version(), ", this router ",
                                         kProtocolVersion, " (use one release)"));
}

absl::Status CheckTexts(Worker worker, const google::protobuf::Message& reply) {
  const google::protobuf::Descriptor& fields = *reply.GetDescriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *fields.field(i);
    if (field.cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_STRING) continue;
    const size_t num_bytes = reply.GetReflection()->GetString(reply, &field).size();
    if (num_bytes <= kMaxAttachTextBytes) continue;
    return FailedPrecondition(absl::StrCat(WorkerName(worker), ": states a ", field.name(), " of ",
                                           num_bytes, " bytes; allowed: ", kMaxAttachTextBytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDrafter(const v1::AttachReply& reply) {
  TANDEM_RETURN_IF_ERROR(CheckProtocolVersion(Worker::kDrafter, reply));
  return CheckTexts(Worker::kDrafter, reply);
}

absl::Status CheckSelfDrafter(const v1::SelfDrafter& drafter) {
  return CheckTexts(Worker::kVerifier, drafter);
}

absl::Status CheckVerifier(const v1::AttachReply& reply, const Tokenizer& tokenizer,
                           const KnownReplies& known, uint32_t max_slots) {
  TANDEM_RETURN_IF_ERROR(CheckProtocolVersion(Worker::kVerifier, reply));
  TANDEM_RETURN_IF_ERROR(CheckTexts(Worker::kVerifier, reply));
  TANDEM_RETURN_IF_ERROR(CheckSelfDrafter(reply.self_drafter()));
  TANDEM_RETURN_IF_ERROR(CheckServesRequests(reply, tokenizer));
  if (known.before != nullptr) {
    TANDEM_RETURN_IF_ERROR(CheckCameBack(reply, *known.before, max_slots));
  }
  return known.others != nullptr ? CheckFitsOthers(reply, *known.others) : absl::OkStatus();
}

std::string OtherNumericsWarning(const v1::AttachReply& reply, const v1::AttachReply* before) {
  if (before == nullptr || reply.numerics_id() == before->numerics_id()) return {};
  return absl::StrCat("verifier: came back with other numerics (", reply.numerics_id(), ", was ",
                      before->numerics_id(),
                      "): streams under way go on, but not with the very same tokens");
}

bool HaveSameVocabulary(const v1::AttachReply& draft, const v1::AttachReply& target) {
  return draft.vocabulary_size() == target.vocabulary_size() &&
         draft.vocabulary_fingerprint() == target.vocabulary_fingerprint();
}

void VocabularyComparison::Add(const v1::VocabularyChunk& chunk) {
  for (int i = 0; i < chunk.entries_size() && first_difference_.empty(); ++i) {
    const uint64_t id = uint64_t{chunk.first_id()} + static_cast<uint64_t>(i);
    const std::string target(id < target_->num_entries() ? target_->Entry(static_cast<int32_t>(id))
                                                         : std::string_view());
    if (chunk.entries(i) == target) continue;
    first_difference_ = absl::StrCat("entry ", id, " is ", Quoted(chunk.entries(i)),
                                     ", the target's is ", Quoted(target));
  }
}

std::string VocabularyComparison::Verdict(const v1::AttachReply& draft,
                                          const v1::AttachReply& target) const {
  constexpr char kHint[] = " (models must share a tokenizer; check --draft)";
  if (draft.vocabulary_size() != target.vocabulary_size()) {
    return absl::StrCat("draft: vocabulary has ", draft.vocabulary_size(),
                        " entries, the target's has ", target.vocabulary_size(), kHint,
                        first_difference_.empty() ? "" : "; first difference: ", first_difference_);
  }
  return first_difference_.empty()
             ? absl::StrCat("draft: vocabulary's fingerprint differs from the target's", kHint)
             : absl::StrCat("draft: vocabulary ", first_difference_, kHint);
}

}  // namespace tandem
