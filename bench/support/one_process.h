// The router's engine, the draft worker and the verifier in one process, with queues in memory in
// place of gRPC. The split into three processes is compared with it.
#ifndef TANDEM_BENCH_SUPPORT_ONE_PROCESS_H_
#define TANDEM_BENCH_SUPPORT_ONE_PROCESS_H_

#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include "tandem/v1/generate.pb.h"

namespace tandem::bench {

struct OneProcessOptions {
  std::filesystem::path target;
  std::filesystem::path draft;
  int threads = 1;  // threads of each worker, as in the three processes
  size_t max_slots = 1;
  size_t max_context = 512;
};

// Three threads stand for the three processes. Each thread runs the work of its process, with
// sessions, models and the log-prob ring.
class OneProcess {
 public:
  // Returns when both workers are attached and the ring is open.
  static absl::StatusOr<std::unique_ptr<OneProcess>> Start(const OneProcessOptions& options);
  ~OneProcess();
  OneProcess(const OneProcess&) = delete;
  OneProcess& operator=(const OneProcess&) = delete;

  // Returns all responses as one, with the completion. Only one call at a time.
  absl::StatusOr<v1::GenerateResponse> Generate(const v1::GenerateRequest& request);

 private:
  struct Impl;
  explicit OneProcess(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::bench

#endif  // TANDEM_BENCH_SUPPORT_ONE_PROCESS_H_
