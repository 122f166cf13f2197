// Checks of a worker's AttachReply. A status that is not OK tells operators why the worker does not
// fit.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_ATTACH_CHECK_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_ATTACH_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/tokenizer/tokenizer.h"
#include "services/router/engine/engine_command.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// The replies that a verifier's reply must fit. Null: there is none.
struct KnownReplies {
  const v1::AttachReply* before = nullptr;  // the same verifier's earlier reply
  const v1::AttachReply* others = nullptr;  // reply that the router's pods fit
};

// Largest number of bytes of a text in a worker's reply. The router keeps these texts, and logs
// some of them.
inline constexpr size_t kMaxAttachTextBytes = 1024;

// FAILED_PRECONDITION: a text about the verifier's drafter is too long.
absl::Status CheckSelfDrafter(const v1::SelfDrafter& drafter);

// Checks what can be said of a drafter's reply alone: protocol and texts. VocabularyComparison
// does the rest.
absl::Status CheckDrafter(const v1::AttachReply& reply);

// Checks a verifier's reply: protocol, texts, the router's tokenizer, that requests can be served
// at all, then `known.before`, then `known.others`. `max_slots` is the router's own limit of slots.
absl::Status CheckVerifier(const v1::AttachReply& reply, const Tokenizer& tokenizer,
                           const KnownReplies& known, uint32_t max_slots);

// Returns a warning if the verifier came back with other numerics than before, else an empty text.
std::string OtherNumericsWarning(const v1::AttachReply& reply, const v1::AttachReply* before);

// Returns true if the vocabularies of drafter and target are the same by size and fingerprint.
bool HaveSameVocabulary(const v1::AttachReply& draft, const v1::AttachReply& target);

// Finds the first difference between a drafter's vocabulary and the target's. The drafter sends its
// vocabulary in chunks.
class VocabularyComparison {
 public:
  // `target` must outlive the comparison.
  explicit VocabularyComparison(const Tokenizer* target) : target_(target) {}

  // Begins with a new vocabulary.
  void Begin() { first_difference_.clear(); }
  void Add(const v1::VocabularyChunk& chunk);
  // Returns how the vocabularies differ. Called after the last chunk, and only if
  // HaveSameVocabulary is false.
  std::string Verdict(const v1::AttachReply& draft, const v1::AttachReply& target) const;

 private:
  const Tokenizer* target_;
  std::string first_difference_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_SESSIONS_ATTACH_CHECK_H_
