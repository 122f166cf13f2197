// The models of one worker: the model that it began with, and those that routers name later.
#ifndef TANDEM_SERVICES_WORKER_MODEL_SHELF_H_
#define TANDEM_SERVICES_WORKER_MODEL_SHELF_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/worker/worker_model.h"
#include "services/worker/worker_stats.h"

namespace tandem {

// A model is loaded as soon as a session claims it by its name, and unloaded when the last claim
// ends. Models are loaded one after the other on a thread of their own, so that sessions with other
// models go on computing meanwhile. Only the server's thread claims, and lets go of claims.
class ModelShelf {
 private:
  struct Place;

 public:
  // Loads the model of this name. Called on the thread that loads.
  using Loader =
      std::function<absl::StatusOr<std::unique_ptr<WorkerModel>>(const std::string& name)>;

  // A claim on a model. It must not outlive the shelf.
  class Claim {
   public:
    // Returns null while the model is being loaded. An error says why it cannot be loaded.
    absl::StatusOr<WorkerModel*> Model() const;

   private:
    friend class ModelShelf;
    explicit Claim(std::shared_ptr<Place> place) : place_(std::move(place)) {}
    std::shared_ptr<Place> place_;
  };

  // `first` is the model that the worker began with. It stays loaded, and must outlive the shelf.
  // Without a `loader` there are no other models.
  explicit ModelShelf(WorkerModel* first, Loader loader = {});
  ~ModelShelf() { Stop(); }
  ModelShelf(const ModelShelf&) = delete;
  ModelShelf& operator=(const ModelShelf&) = delete;

  WorkerModel& first() { return *first_; }
  // An empty name claims the first model.
  Claim ClaimModel(const std::string& name);
  // The thread that loads calls `call` whenever a model was loaded, or could not be. To be set
  // before the first claim. An empty function: nobody wants to know any more.
  void OnLoaded(std::function<void()> call);
  // As WorkerModel::OnDeviceLoss, for all models. To be set before the first claim.
  void OnDeviceLoss(std::function<void(const absl::Status& why)> call);

  // Loads nothing more. Waits until the model that is being loaded is loaded.
  void Stop();

  // What all models together have computed. It never falls. Any thread calls this function.
  uint64_t progress() const;

  // The sums over all models, for metrics. Only the server's thread calls this function. The stats
  // have the counts of models that were unloaded, too.
  struct Totals {
    WorkerStats stats;
    size_t num_models = 0;
    size_t num_slots = 0;
    size_t num_open_slots = 0;
    size_t num_pages = 0;
    size_t num_free_pages = 0;    // those of the prefix cache are free too
    size_t num_cached_pages = 0;  // in the prefix cache alone
  };
  Totals Sum() const;

 private:
  struct Place {
    explicit Place(ModelShelf* shelf_of_place) : shelf(shelf_of_place) {}
    ~Place();
    ModelShelf* const shelf;
    // Guarded by the shelf's mutex until the load has ended. Nothing changes afterwards.
    std::string name;
    bool is_loaded = false;
    absl::Status failure;
    std::unique_ptr<WorkerModel> model;
  };

  void LoadAll();
  // Keeps what is left of a model that is about to be unloaded.
  void Retire(Place& place);

  WorkerModel* const first_;
  const Loader loader_;
  std::function<void()> on_loaded_;
  std::function<void(const absl::Status& why)> on_device_loss_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::weak_ptr<Place>> places_;  // claimed models by name
  std::map<Place*, WorkerModel*> loaded_;               // all but the first
  std::deque<std::shared_ptr<Place>> to_load_;
  uint64_t retired_progress_ = 0;
  WorkerStats retired_stats_;
  bool stopping_ = false;
  std::thread thread_;  // begins with the first claim of another model
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_MODEL_SHELF_H_
