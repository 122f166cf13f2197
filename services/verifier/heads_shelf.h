// Which heads a verifier has, and how they are replaced while it computes.
#ifndef TANDEM_SERVICES_VERIFIER_HEADS_SHELF_H_
#define TANDEM_SERVICES_VERIFIER_HEADS_SHELF_H_

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/heads/self_drafter.h"
#include "services/worker/worker_model.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Heads are loaded on a thread of their own, one after the other, and adopted between two commands.
// Only the thread that computes uses the shelf. All sessions of a verifier share it: what was asked
// for last is what all of them get.
class HeadsShelf {
 public:
  // `model` must outlive the shelf. The destructor waits until the heads that are being loaded are
  // loaded.
  explicit HeadsShelf(WorkerModel* model) : model_(*model) {}
  HeadsShelf(const HeadsShelf&) = delete;
  HeadsShelf& operator=(const HeadsShelf&) = delete;

  // Works towards these heads (v1.SetHeads). Returns true once the verifier has them, and false
  // while they, or others that were asked for before, are being loaded. FAILED_PRECONDITION: there
  // is no --heads-folder, it has no such heads, they do not fit the target, or pages have no room
  // for what they keep. Other errors come from the device. After an error the heads are as before,
  // and a further call begins anew.
  absl::StatusOr<bool> Want(const std::string& name);

  // Returns what a router is told of the heads.
  v1::SelfDrafter Describe() const;
  // Grows whenever heads replace others.
  uint64_t version() const { return version_; }

 private:
  using Heads = absl::StatusOr<std::unique_ptr<SelfDrafter>>;
  struct Load {
    std::string name;
    std::future<Heads> heads;
  };

  // Loads heads. Null: none. Called on the thread that loads.
  Heads LoadNow(const std::string& name);
  // Adopts the heads that were loaded. PRECOND: there is a load, and it has ended.
  absl::Status Finish();
  absl::Status Adopt(std::unique_ptr<SelfDrafter> heads);

  WorkerModel& model_;
  std::string name_;  // as of v1.SetHeads
  uint64_t version_ = 0;
  std::optional<Load> load_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_VERIFIER_HEADS_SHELF_H_
