// The context that the calls of all methods share.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CALL_CONTEXT_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CALL_CONTEXT_H_

#include <grpcpp/completion_queue.h>

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/security/call_gate.h"
#include "common/security/call_interceptor.h"
#include "common/status.h"
#include "services/router/client_calls/background_work.h"
#include "services/router/fleet/fleet.h"
#include "services/router/request/request_validator.h"
#include "tandem/v1/draft_models.grpc.pb.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem {

// Names of the methods for the gate.
inline constexpr char kGenerateMethod[] = "/tandem.v1.Generation/Generate";
inline constexpr char kGenerateManyMethod[] = "/tandem.v1.Generation/GenerateMany";
inline constexpr char kTokenizeMethod[] = "/tandem.v1.Generation/Tokenize";
inline constexpr char kDetokenizeMethod[] = "/tandem.v1.Generation/Detokenize";
inline constexpr char kGetServerInfoMethod[] = "/tandem.v1.Generation/GetServerInfo";
// Those of admins.
inline constexpr char kListDraftModelsMethod[] = "/tandem.v1.DraftModels/List";
inline constexpr char kLoadDraftModelMethod[] = "/tandem.v1.DraftModels/Load";
inline constexpr char kPromoteDraftModelMethod[] = "/tandem.v1.DraftModels/Promote";
inline constexpr char kRollBackDraftModelsMethod[] = "/tandem.v1.DraftModels/RollBack";
inline constexpr char kUnloadDraftModelMethod[] = "/tandem.v1.DraftModels/Unload";
inline constexpr char kSwapHeadsMethod[] = "/tandem.v1.DraftModels/SwapHeads";
inline constexpr char kRollBackHeadsMethod[] = "/tandem.v1.DraftModels/RollBackHeads";

// Time after which a client should try again if there is no room, or no verifier.
inline constexpr int kRetryMilliseconds = 1000;

// Longest text, in bytes, that is tokenized on the polling thread. Every stream waits meanwhile, so
// longer texts are tokenized in the background.
inline constexpr size_t kMaxShortTextBytes = 16 << 10;

// Largest chat, in bytes, that is rendered and tokenized on the polling thread. It is smaller than
// that of a text, because a template does some work for each message.
inline constexpr size_t kMaxShortChatBytes = 4 << 10;

inline bool IsLong(const v1::Chat& chat) { return chat.ByteSizeLong() > kMaxShortChatBytes; }

// Returns the status of a call if the background has no room for its text.
inline absl::Status TooMuchWork() {
  return ResourceExhausted("too many long texts wait to be tokenized");
}

// The objects must outlive the calls.
struct CallContext {
  v1::Generation::AsyncService* service;
  v1::DraftModels::AsyncService* draft_models;
  grpc::ServerCompletionQueue* queue;
  CallGate* gate;
  const RequestValidator* validator;
  BackgroundWork* background;
  Fleet* fleet;
  std::string model;             // name of the served model
  std::string tool_call_format;  // "auto": as the chat template shows it
  std::string admin_address;     // HOST:PORT; empty: there is none
};

// Returns the check that UnaryMethod makes before a call of this method.
inline std::function<absl::Status(const grpc::ServerContext&)> GateOf(const CallContext& context,
                                                                      const char* method) {
  return [gate = context.gate, method](const grpc::ServerContext& call) {
    return CheckCall(*gate, method, call);
  };
}

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CALL_CONTEXT_H_
