// What the pure engine wants done. The adapter around the engine carries the commands out in order.
#ifndef TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_COMMAND_H_
#define TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_COMMAND_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "tandem/v1/generate.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// The two kinds of workers: which half of worker.proto one speaks.
enum class Worker : uint8_t { kDrafter, kVerifier };
inline constexpr size_t kNumWorkers = 2;
inline const char* WorkerName(Worker worker) {
  return worker == Worker::kDrafter ? "draft" : "verifier";
}
// Names one worker of a pod: an index into the pod's list of peers. Peer 0 is the verifier; the
// others are draft models.
using PeerId = uint32_t;
inline constexpr PeerId kVerifierPeer = 0;
inline constexpr PeerId kDrafterPeer = 1;  // the first draft model
inline constexpr Worker KindOf(PeerId peer) {
  return peer == kVerifierPeer ? Worker::kVerifier : Worker::kDrafter;
}
// "verifier", "draft", "draft-2", "draft-3" …
std::string PeerName(PeerId peer);
// Number of a draft model among those of its pod, from 0 on. PRECOND: the peer is a draft model.
inline constexpr uint32_t DraftModelOf(PeerId peer) { return peer - kDrafterPeer; }

// Names one worker pod of a router. A number is never used again.
using PodId = uint32_t;

// Names one Generate call. The adapter chooses it.
using CallId = uint64_t;
// Names one stream to a worker. The engine chooses the number and never uses it again. What arrives
// from an older stream is ignored.
using SessionId = uint64_t;

// Opens a stream. Its replies and its end come back as events.
struct OpenSession {
  PeerId peer;
  SessionId session;
  // The draft worker, by its number in the pod. It is that of the peer, unless the worker loads the
  // peer's model. 0 for the verifier.
  uint32_t draft_worker = 0;
};
// Gives the stream up, without an event.
struct CloseSession {
  Worker worker;
  SessionId session;
};
struct SendToDrafter {
  SessionId session;
  v1::DraftCommand command;
};
struct SendToVerifier {
  SessionId session;
  v1::VerifierCommand command;
};
// Pings the session's worker on the session's WorkerHealth stream. The first ping opens that
// stream, and it is closed with the session. Pongs come back as events.
struct SendPing {
  Worker worker;
  SessionId session;
  uint64_t token;  // Attach.session_token
};
// Searches the corpus of the retrieval drafter. The answer comes back as an event, or never.
struct SearchCorpus {
  struct Query {
    uint32_t slot;
    uint64_t serial;               // number of the slot's sequence
    size_t length;                 // number of tokens of the text
    std::vector<int32_t> context;  // its last tokens
  };
  SessionId session;  // the verifier's
  uint32_t cohort;
  uint64_t id;
  std::vector<Query> queries;
};
struct WriteResponse {
  CallId call;
  v1::GenerateResponse response;
};
// One life of a slot at the verifier.
struct SlotLife {
  uint32_t slot = 0;
  uint32_t epoch = 0;
};
// Ends the call with `status`. Responses that were written before are sent first.
struct FinishCall {
  CallId call;
  absl::Status status;
  int32_t emitted_tokens = 0;         // trailing metadata if the status is not OK
  int32_t retry_milliseconds = 0;     // when to come back; 0: no hint
  std::optional<SlotLife> slot = {};  // last slot of the request; none: it never ran
};
struct LogLine {
  enum class Level : uint8_t { kDebug, kInfo, kWarning, kError };
  Level level;
  std::string text;
  // What the line is about, where that can be said.
  std::string request_id = {};
  std::optional<uint32_t> slot = {};
  // Epoch of the slot at the verifier. In the line of a rollback: at the drafter.
  std::optional<uint32_t> epoch = {};
  std::optional<SessionId> session = {};
  // What people other than the log's readers may see instead; empty: the text.
  std::string summary = {};
  std::string pod = {};  // verifier address of the pod, where there are several
};
// The configuration is wrong. The process should say why and exit.
struct GiveUp {
  absl::Status status;
  std::string summary = {};  // as for LogLine; empty: the status' message
};

using EngineCommand =
    std::variant<OpenSession, CloseSession, SendToDrafter, SendToVerifier, SendPing, SearchCorpus,
                 WriteResponse, FinishCall, LogLine, GiveUp>;
using EngineCommands = std::vector<EngineCommand>;

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_ENGINE_ENGINE_COMMAND_H_
