// Calls the public API of a router: proto/tandem/v1/generate.proto.
#ifndef TANDEM_SERVICES_CLI_CLIENT_GENERATION_CLIENT_H_
#define TANDEM_SERVICES_CLI_CLIENT_GENERATION_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/cli/client/client_security.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::cli {

// Statuses come from the server unchanged. Calls block. Any other thread may call Cancel.
class GenerationClient {
 public:
  // "HOST:PORT" or "unix:PATH". Does not connect yet.
  explicit GenerationClient(const std::string& address, const ClientSecurity& security = {});
  ~GenerationClient();

  // UNAVAILABLE: nobody answered in time.
  absl::Status Connect(std::chrono::milliseconds timeout);

  // Runs a request to its end. `on_message` gets every response when it arrives, and cancels the
  // request by returning false. Returns all responses as one: their texts, token ids, sources and
  // logprobs are concatenated, and the completion is that of the last response.
  using OnMessage = std::function<bool(const v1::GenerateResponse& message)>;
  absl::StatusOr<v1::GenerateResponse> Generate(const v1::GenerateRequest& request,
                                                const OnMessage& on_message);

  absl::StatusOr<std::vector<int32_t>> Tokenize(const std::string& text, bool add_special_tokens);
  // Returns the prompt that the model's chat template makes of the conversation, and its tokens.
  absl::StatusOr<v1::TokenizeResponse> Render(const v1::Chat& chat);
  absl::StatusOr<std::string> Detokenize(const std::vector<int32_t>& ids, bool skip_special_tokens);
  absl::StatusOr<v1::ServerInfo> GetServerInfo();

  // Ends the running Generate, and every later one, with CANCELLED.
  void Cancel();
  // Ends the running Generate, if there is one, with CANCELLED.
  void CancelRunning();
  bool canceled() const;

  const std::string& address() const;
  const ClientSecurity& security() const;

 private:
  struct Impl;  // keeps gRPC's headers out of this header
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_CLIENT_GENERATION_CLIENT_H_
