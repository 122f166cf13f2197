// All GenerateMany streams of a router's clients.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MANY_MANY_STREAMS_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MANY_MANY_STREAMS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "absl/status/status.h"
#include "services/router/client_calls/call_context.h"
#include "services/router/client_calls/generate_calls.h"
#include "services/router/client_calls/many/many_stream.h"

namespace tandem {

// Takes streams, and gives their calls to GenerateCalls. Everything runs on the thread that polls
// the completion queue.
class ManyStreams final : public ManyStream::Owner {
 public:
  struct Options {
    ManyLimits limits;
    size_t buffer_bytes = 0;   // largest part of a call's output that waits for the client to read
    size_t padding_bytes = 0;  // sizes of responses are multiples of this number; 0: any size
  };

  // `calls` must outlive the streams.
  ManyStreams(const CallContext& context, const Options& options, GenerateCalls* calls)
      : context_(context), options_(options), calls_(calls) {}

  // Waits for the first client. Each client that comes begins the wait for the next client.
  void WaitForClient();
  // Writes what streams have. Called after each piece of work.
  void Flush();
  // Cancels all calls, and ends all streams.
  void Finish(const absl::Status& status);

 private:
  absl::Status OnOpened(ManyStream& stream) override;
  void OnCall(ManyStream& stream, v1::GenerateManyRequest begin,
              std::optional<Refusal> refusal) override;
  void OnEvents(ManyStream& stream) override { waiting_.insert(&stream); }
  void OnClosed(ManyStream& stream) override;

  const CallContext context_;
  const Options options_;
  GenerateCalls* const calls_;
  // One of the streams waits for a client.
  std::unordered_map<ManyStream*, std::unique_ptr<ManyStream>> streams_;
  std::unordered_set<ManyStream*> waiting_;  // those that want a flush
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_MANY_MANY_STREAMS_H_
