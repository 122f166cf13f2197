#include "services/worker/model_shelf.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <vector>

#include "common/status.h"
#include "services/worker/stopwatch.h"

namespace tandem {

ModelShelf::Place::~Place() { shelf->Retire(*this); }

absl::StatusOr<WorkerModel*> ModelShelf::Claim::Model() const {
  ModelShelf& shelf = *place_->shelf;
  if (place_->name.empty()) return shelf.first_;
  const std::lock_guard<std::mutex> lock(shelf.mutex_);
  if (!place_->is_loaded) return nullptr;
  TANDEM_RETURN_IF_ERROR(place_->failure);
  return place_->model.get();
}

ModelShelf::ModelShelf(WorkerModel* first, Loader loader)
    : first_(first), loader_(std::move(loader)) {}

void ModelShelf::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  std::deque<std::shared_ptr<Place>> unwanted;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    unwanted.swap(to_load_);
  }
}

ModelShelf::Claim ModelShelf::ClaimModel(const std::string& name) {
  if (name.empty()) return Claim(std::make_shared<Place>(this));
  const std::lock_guard<std::mutex> lock(mutex_);
  std::weak_ptr<Place>& known = places_[name];
  if (std::shared_ptr<Place> place = known.lock()) return Claim(std::move(place));
  auto place = std::make_shared<Place>(this);
  place->name = name;
  known = place;
  if (loader_) {
    to_load_.push_back(place);
    if (!thread_.joinable()) thread_ = std::thread([this] { LoadAll(); });
    changed_.notify_all();
  } else {
    place->is_loaded = true;
    place->failure = FailedPrecondition("\"" + name +
                                        "\": this worker loads no other model (it was started "
                                        "without --draft-folder)");
  }
  return Claim(std::move(place));
}

void ModelShelf::OnLoaded(std::function<void()> call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  on_loaded_ = std::move(call);
}

void ModelShelf::OnDeviceLoss(std::function<void(const absl::Status& why)> call) {
  first_->OnDeviceLoss(call);
  on_device_loss_ = std::move(call);
}

void ModelShelf::LoadAll() {
  while (true) {
    std::shared_ptr<Place> place;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !to_load_.empty(); });
      if (stopping_) return;
      place = std::move(to_load_.front());
      to_load_.pop_front();
    }
    // Nobody wants the model any more: the claim ended before its turn came.
    if (place.use_count() == 1) continue;
    const Stopwatch time;
    absl::StatusOr<std::unique_ptr<WorkerModel>> model;
    try {
      model = loader_(place->name);
    } catch (const std::exception& error) {
      model = Internal(error.what());
    }
    if (model.ok()) {
      spdlog::info("{}: loaded in {:.2f} s", place->name, time.seconds());
      if (on_device_loss_) (*model)->OnDeviceLoss(on_device_loss_);
    } else {
      spdlog::warn("{}: cannot be loaded: {}", place->name, std::string(model.status().message()));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    place->is_loaded = true;
    if (model.ok()) {
      place->model = *std::move(model);
      loaded_[place.get()] = place->model.get();
    } else {
      place->failure = model.status();
    }
    if (on_loaded_) on_loaded_();
  }
}

void ModelShelf::Retire(Place& place) {
  if (place.name.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto known = places_.find(place.name);
      known != places_.end() && known->second.expired()) {
    places_.erase(known);
  }
  if (place.model == nullptr) return;
  loaded_.erase(&place);
  retired_progress_ += place.model->model().progress();
  retired_stats_ += place.model->stats();
  spdlog::info("{}: unloaded", place.name);
}

uint64_t ModelShelf::progress() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t progress = first_->model().progress() + retired_progress_;
  for (const auto& [place, model] : loaded_) progress += model->model().progress();
  return progress;
}

ModelShelf::Totals ModelShelf::Sum() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<const WorkerModel*> models = {first_};
  for (const auto& [place, model] : loaded_) models.push_back(model);
  Totals totals;
  totals.stats = retired_stats_;
  totals.num_models = models.size();
  for (const WorkerModel* model : models) {
    const CachePool& caches = model->caches();
    totals.stats += model->stats();
    totals.num_slots += caches.size();
    totals.num_open_slots += caches.size() - caches.num_free();
    totals.num_pages += caches.pages().num_pages();
    totals.num_free_pages += caches.pages().num_free();
    totals.num_cached_pages += caches.pages().num_cached();
  }
  return totals;
}

}  // namespace tandem
