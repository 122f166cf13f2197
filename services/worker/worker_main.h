// The main function that both workers share: options, logs, signals, the line "ready: ADDRESS".
#ifndef TANDEM_SERVICES_WORKER_WORKER_MAIN_H_
#define TANDEM_SERVICES_WORKER_WORKER_MAIN_H_

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/worker/model_shelf.h"
#include "services/worker/session/server_setup.h"
#include "services/worker/session/worker_server.h"
#include "services/worker/worker_model.h"

namespace tandem {

struct WorkerProgram {
  std::string description;  // for --help
  // True for the verifier, which judges drafts and owns the log-prob ring. Adds the flag
  // --ring-dir.
  bool judges = false;
  // True: a --max-context over the model's limit is cut to the limit. This is for the drafter: a
  // drafter that can hold less than the target drafts up to its own limit.
  bool may_cut_context = false;
  // See WorkerModelOptions.
  DeviceModelLoader load_on_gpu = {};
  // Listens. `models` outlive the server. `ring_dir` is empty unless --ring-dir was given.
  std::function<absl::StatusOr<std::unique_ptr<WorkerServer>>(
      const WorkerEndpoint& endpoint, ModelShelf& models, const std::filesystem::path& ring_dir)>
      start;
};

// Returns the exit code: 0 after SIGTERM or SIGINT, 2 for a bad command line, 1 if the worker
// cannot serve or has lost the device that computes. With exit code 1, one line on standard error
// says why. Call this function first in main, because signals must be blocked before any thread
// starts.
int RunWorker(int argc, char** argv, const WorkerProgram& program);

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_WORKER_MAIN_H_
