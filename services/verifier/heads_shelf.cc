#include "services/verifier/heads_shelf.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/drafter_room.h"
#include "common/rpc/protocol.h"
#include "common/status.h"
#include "services/worker/model_folder_entry.h"

namespace tandem {
namespace {

constexpr size_t kMaxSuperseded = 64;

// Reads the files of a folder once, so that the thread that computes does not wait for the disk
// when it uses the mapped files for the first time.
void ReadFiles(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<char> buffer(size_t{1} << 20);
  for (std::filesystem::directory_iterator entry(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::ifstream file(entry->path(), std::ios::binary);
    while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()))) {
    }
  }
}

}  // namespace

absl::StatusOr<HeadsShelf::Answer> HeadsShelf::Want(const v1::SetHeads& wish) {
  if (wish.wish() == 0) return InvalidArgument("set_heads.wish: got 0, want another number");
  if (wish.wish() != wish_) {
    if (std::find(superseded_.begin(), superseded_.end(), wish.wish()) != superseded_.end()) {
      return Answer::kSuperseded;
    }
    superseded_.push_back(std::exchange(wish_, wish.wish()));
    if (superseded_.size() > kMaxSuperseded) superseded_.pop_front();
    wanted_ = wish.heads();
  }
  if (load_.has_value()) {
    if (load_->heads.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      return wanted_ == name_ ? Answer::kThere : Answer::kLoading;
    }
    TANDEM_RETURN_IF_ERROR(Finish());
  }
  if (wanted_ == name_) return Answer::kThere;
  TANDEM_RETURN_IF_ERROR(Begin());
  return Answer::kLoading;
}

absl::Status HeadsShelf::Begin() {
  const auto load = [this, name = wanted_]() -> Heads {
    try {
      return LoadNow(name);
    } catch (const std::exception& error) {
      return Internal(error.what());
    }
  };
  try {
    load_.emplace(Load{wanted_, std::async(std::launch::async, load)});
  } catch (const std::exception& error) {
    return Internal(absl::StrCat("no thread can load the heads: ", error.what()));
  }
  return absl::OkStatus();
}

HeadsShelf::Heads HeadsShelf::LoadNow(const std::string& name) {
  const HeadsOptions& options = model_.heads();
  if (options.folder.empty()) {
    return FailedPrecondition(
        "the verifier was started without --heads-folder, so its heads cannot be swapped");
  }
  if (name == kNoHeads || (name.empty() && options.first.empty())) return nullptr;
  std::filesystem::path path = options.first;
  if (!name.empty()) {
    TANDEM_ASSIGN_OR_RETURN(path, FindInFolder({options.folder, "--heads-folder", "heads"}, name));
  }
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SelfDrafter> heads, model_.model().LoadHeads(path));
  ReadFiles(path);
  const KvShape& pages = model_.caches().pages().shape();
  const ModelDescription& target = model_.model().description();
  const DrafterRoom room = {.kv_layers = pages.num_layers - target.num_layers,
                            .feature_parts = pages.feature_floats / target.hidden_size};
  const DrafterRoom needed = DrafterRoom::Of(*heads);
  if (room.Holds(needed)) return heads;
  return FailedPrecondition(absl::StrCat(
      "the pages of the KV cache lack room for what these heads keep of each row (layers: ",
      needed.kv_layers, ", states: ", needed.feature_parts, "; there is room for ", room.kv_layers,
      " and ", room.feature_parts,
      "): the room is that of the largest heads that --heads-folder had when the verifier started, "
      "so start it again"));
}

absl::Status HeadsShelf::Finish() {
  Load load = *std::exchange(load_, std::nullopt);
  Heads heads = load.heads.get();
  if (load.name != wanted_ || load.name == name_) return absl::OkStatus();
  absl::Status adopted = heads.ok() ? Adopt(*std::move(heads)) : heads.status();
  if (!adopted.ok()) {
    model_.CheckDevice(adopted);
    spdlog::warn("the heads \"{}\" cannot be used: {}", load.name, std::string(adopted.message()));
    return adopted;
  }
  name_ = load.name;
  ++version_;
  const v1::SelfDrafter drafter = Describe();
  if (drafter.name().empty()) {
    spdlog::info("no heads draft any more");
  } else {
    spdlog::info("the heads \"{}\" ({}) draft from now on", drafter.heads(), drafter.name());
  }
  return absl::OkStatus();
}

absl::Status HeadsShelf::Adopt(std::unique_ptr<SelfDrafter> heads) {
  LanguageModel& model = model_.model();
  const RowFeatures stored = model.stored_features();
  TANDEM_RETURN_IF_ERROR(model.AdoptHeads(std::move(heads)));
  KvPagePool& pages = model_.caches().pages();
  pages.ForgetDrafterRows();
  if (model.stored_features() != stored) pages.ForgetFeatures();
  return absl::OkStatus();
}

v1::SelfDrafter HeadsShelf::Describe() const {
  v1::SelfDrafter described;
  described.set_version(version_);
  described.set_is_first(name_.empty());
  const SelfDrafter* const heads = model_.model().self_drafter();
  if (heads == nullptr) return described;
  described.set_name(heads->name());
  described.set_max_depth(heads->max_depth());
  described.set_heads(name_.empty() ? NameOfFolder(model_.heads().first) : name_);
  return described;
}

}  // namespace tandem
