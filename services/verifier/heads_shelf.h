// Which heads a verifier has, and how they are replaced while it computes.
#ifndef TANDEM_SERVICES_VERIFIER_HEADS_SHELF_H_
#define TANDEM_SERVICES_VERIFIER_HEADS_SHELF_H_

#include <cstdint>
#include <deque>
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
// Only the thread that computes uses the shelf. All sessions of a verifier share it, and the newest
// wish counts. Heads that nobody wants any more when they are loaded are dropped.
class HeadsShelf {
 public:
  // `model` must outlive the shelf. The destructor waits until the heads that are being loaded are
  // loaded.
  explicit HeadsShelf(WorkerModel* model) : model_(*model) {}
  HeadsShelf(const HeadsShelf&) = delete;
  HeadsShelf& operator=(const HeadsShelf&) = delete;

  enum class Answer : uint8_t { kThere, kLoading, kSuperseded };
  // Works towards the heads of a wish, and says how far that is. INVALID_ARGUMENT: the wish has no
  // number. FAILED_PRECONDITION: there is no --heads-folder, it has no such heads, they do not fit
  // the target, or pages have no room for what they keep. Other errors come from the device. After
  // an error the heads are as before, and the wish, made again, begins anew.
  absl::StatusOr<Answer> Want(const v1::SetHeads& wish);

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
  absl::Status Begin();
  // Takes the heads that were loaded, and adopts them if they are wanted. PRECOND: there is a load,
  // and it has ended.
  absl::Status Finish();
  absl::Status Adopt(std::unique_ptr<SelfDrafter> heads);

  WorkerModel& model_;
  std::string name_;                 // the heads that there are, as of v1.SetHeads
  std::string wanted_;               // the same of the newest wish
  uint64_t wish_ = 0;                // its number; 0: there was none
  std::deque<uint64_t> superseded_;  // numbers of the last wishes before it
  uint64_t version_ = 0;
  std::optional<Load> load_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_VERIFIER_HEADS_SHELF_H_
