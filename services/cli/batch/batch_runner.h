// Sends the lines of a batch, several at a time.
#ifndef TANDEM_SERVICES_CLI_BATCH_BATCH_RUNNER_H_
#define TANDEM_SERVICES_CLI_BATCH_BATCH_RUNNER_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/cli/batch/batch_client.h"
#include "services/cli/batch/batch_input.h"
#include "services/cli/batch/batch_output.h"
#include "services/cli/batch/batch_progress.h"
#include "services/cli/client/generation_client.h"
#include "services/gateway/api/requests/completion_request.h"

namespace tandem::cli {

// A line that the server refuses is answered with its error, as over HTTP. A line for which the
// server has no room is sent again when the server says. If the server is gone for half a minute,
// or knows the token no more, the batch ends, and such lines are not answered.
class BatchRunner {
 public:
  struct Parts {
    const BatchInput& input;
    BatchOutput& output;
    BatchClient& client;
    GenerationClient& questions;  // for calls other than Generate
    v1::ServerInfo served;
    int concurrency = 1;
  };
  // `counts`: those at the start.
  BatchRunner(const Parts& parts, const BatchCounts& counts);

  // Returns when all lines are done. UNAVAILABLE and others: why the batch ended. CANCELLED: Stop
  // was called.
  absl::Status Run(BatchProgress& progress);

  // Ends all that runs. Any thread may call it.
  void Stop();

  BatchCounts counts() const;

 private:
  // How one line ended.
  struct Outcome {
    int http_status = 200;
    std::string body;
    int64_t tokens = 0;
    std::string problem;  // why the line failed; empty: it did not
  };

  void Work();
  // Returns how the line ended, or why the batch ends.
  absl::StatusOr<Outcome> Process(const BatchLine& line, const std::string& request_id);
  // Sends the line once.
  gateway::CallEnd Try(gateway::CompletionRequest request, const std::string& request_id,
                       Outcome* outcome);
  absl::StatusOr<std::string> EchoOf(const gateway::CompletionRequest& request, size_t prompt);
  // Returns false if the batch ended meanwhile.
  bool Pause(double seconds);
  void End(const absl::Status& status);
  void Note(int64_t number, const Outcome& outcome);

  const Parts parts_;
  const std::string run_id_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  BatchCounts counts_;
  std::vector<std::string> problems_;  // that were not printed yet
  size_t next_ = 0;                    // index of the next line
  int num_working_ = 0;                // threads
  absl::Status status_;                // not OK: the batch ended early
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_BATCH_BATCH_RUNNER_H_
