// The situations that a run met. They show that the scenarios reach the situations for which they
// are made.
#ifndef TANDEM_TESTS_SIMULATOR_SIGHT_H_
#define TANDEM_TESTS_SIMULATOR_SIGHT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem::simulator {

enum class Sight : uint8_t {
  kCompleted,
  kPlainRound,
  kDraftAccepted,
  kDraftRejected,
  kRingBlock,
  kRingError,
  kWorkersOverlap,  // both workers compute for one router
  kPromptInPieces,
  kCacheHit,
  kPoolExhausted,  // a worker says so
  kPreemption,
  kReplay,  // a replay of the audit
  kCommandRepeated,
  kAborted,
  kReplyToGivenUpSession,
  kSessionLost,
  kSessionGivenUp,
  kQueueFull,
  kCannotFit,
  kQuarantined,
  kVerifierGone,
  kDraining,
  kIdTaken,
  kNonFinite,
  kCanceled,
  kRouterReplaced,
  kStreamMoved,
  kPlacedBesideDrain,  // the router knew that the other pod was told to stop
  kRolledBack,         // the rollback was part of a Propose
  kRolledBackAlone,
  kFoundDraft,
  kSelfDraft,  // a draft that the verifier proposed
  kTree,
  kRowsMoved,
  kModelTree,        // a tree that the draft model drew
  kSiblingAccepted,  // in such a tree
  kOtherModel,       // a draft of a model that is not the pod's first
  kLoadedModel,      // a draft of a model that was loaded later
  kCanary,           // a draft of a canary is asked for
  kUnloadedWhileDrafting,
  kSwappedHeads,      // a proposal by heads that the verifier did not begin with
  kHeadsBeingLoaded,  // a verdict while other heads are being loaded
  kSharedFeatures,    // a proposal from rows of the heads that are known from pages alone
  kWithoutFeatures,   // no proposal, as the text lacks the states that the heads read
  kScoredInPieces,    // log-probabilities of a prompt, not the first ones
  kScoredBefore,      // a part of a prompt is computed again without them
};
inline constexpr std::array<std::string_view, 46> kSightNames = {
    "calls completed",
    "plain rounds",
    "drafts accepted in full",
    "drafts rejected",
    "blocks judged by rows of the ring",
    "blocks dropped for their rows",
    "drafter and verifier at work at once",
    "prompts sent in pieces",
    "prefix-cache hits",
    "workers out of pages",
    "preemptions",
    "replays of the audit",
    "commands repeated",
    "commands aborted",
    "replies to a session given up",
    "sessions lost",
    "sessions given up",
    "requests refused by a full queue",
    "requests that can never fit",
    "requests quarantined",
    "requests ended as the verifier is gone",
    "requests refused or ended as the router ends",
    "request ids taken",
    "requests ended by logits not finite",
    "calls canceled",
    "routers replaced",
    "streams finished after they moved to another pod",
    "requests that began beside a pod told to stop",
    "rollbacks that rode in a Propose",
    "rollbacks that traveled alone",
    "blocks of tokens that the router found",
    "blocks of tokens that the verifier proposed",
    "trees judged",
    "accepted paths whose rows were moved",
    "trees of the draft model judged",
    "siblings of the draft model accepted",
    "drafts of a model that is not the first",
    "drafts of a model that was loaded later",
    "drafts that a canary is asked for",
    "models unloaded while they drafted",
    "proposals by heads that were swapped in",
    "verdicts while other heads were loaded",
    "proposals from features found on pages",
    "texts that lack the features of the heads",
    "prompts scored in pieces",
    "prompts computed again that were scored before"};

struct Sights {
  std::array<uint64_t, kSightNames.size()> counts = {};

  void Add(Sight sight) { ++counts[static_cast<size_t>(sight)]; }
  void Add(const Sights& other) {
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  }
};

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_SIGHT_H_
