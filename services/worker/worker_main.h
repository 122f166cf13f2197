// What the two workers' main functions share: options, logs, signals, the line "ready: ADDRESS".
#ifndef TANDEM_SERVICES_WORKER_WORKER_MAIN_H_
#define TANDEM_SERVICES_WORKER_WORKER_MAIN_H_

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/worker/server_setup.h"
#include "services/worker/worker_model.h"
#include "services/worker/worker_server.h"

namespace tandem {

struct WorkerProgram {
  std::string name;         // of the executable
  std::string description;  // for --help
  // It judges drafts, and owns the log-prob ring: --ring-dir is taken.
  bool judges = false;
  // A --max-context over the model's limit is cut to it. For the drafter: one that can hold less
  // than the target drafts as far as it can.
  bool may_cut_context = false;
  // See WorkerModelOptions.
  DeviceModelLoader load_on_gpu = {};
  // Listens. `model` outlives the server; `ring_dir` is empty unless given.
  std::function<absl::StatusOr<std::unique_ptr<WorkerServer>>(
      const WorkerEndpoint& endpoint, const WorkerModel& model,
      const std::filesystem::path& ring_dir)>
      start;
};

// Exit code: 0 after SIGTERM or SIGINT, 1 when it cannot serve, or has lost the device that it
// computes on (one line on standard error says why), 2 for a bad command line. Call it first in
// main: signals are blocked before any thread starts.
int RunWorker(int argc, char** argv, const WorkerProgram& program);

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_WORKER_MAIN_H_
