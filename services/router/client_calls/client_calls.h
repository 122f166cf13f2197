// All calls of a router's clients.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CLIENT_CALLS_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CLIENT_CALLS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "common/tokenizer/tokenizer.h"
#include "services/router/client_calls/call_context.h"
#include "services/router/client_calls/generate_calls.h"
#include "services/router/client_calls/many/many_streams.h"
#include "services/router/client_calls/unary_calls.h"
#include "services/router/watch/router_metrics.h"

namespace tandem {

// Everything runs on the thread that polls the completion queue.
class ClientCalls {
 public:
  struct Options {
    GenerateCalls::Options generate;
    ManyStreams::Options many;
    std::string version;
    size_t max_message_bytes = 0;  // largest reply of a unary method
  };

  // `tokenizer` and `metrics` must outlive the calls.
  ClientCalls(const CallContext& context, const Options& options, const Tokenizer* tokenizer,
              RouterMetrics* metrics)
      : generate_(context, options.generate, metrics),
        many_(context, options.many, &generate_),
        unary_(context, tokenizer, options.version, options.max_message_bytes) {}

  // Begins to take calls of all methods.
  void Serve() {
    generate_.WaitForClient();
    many_.WaitForClient();
    unary_.Serve();
  }

  // Calls of Generate, also those on streams of many.
  GenerateCalls& generate() { return generate_; }
  // Writes what waits to be written. Called after each piece of work.
  void Flush() { many_.Flush(); }
  // Ends the streams of many calls, with the calls that are left.
  void EndStreams(const absl::Status& status) { many_.Finish(status); }

 private:
  GenerateCalls generate_;
  ManyStreams many_;
  UnaryCalls unary_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_CLIENT_CALLS_H_
