#include "common/model/checkpoint/checkpoint.h"

#include <set>
#include <string_view>
#include <utility>

#include "common/model/checkpoint/json_file.h"
#include "common/status.h"

namespace tandem {
namespace {

// A shard lies beside its index. Names that could lead elsewhere are refused.
bool IsPlainFileName(std::string_view name) {
  return !name.empty() &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos &&
         name.find("..") == std::string_view::npos && name != ".";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::filesystem::path& folder) {
  const std::filesystem::path single = folder / "model.safetensors";
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  std::error_code ignored;
  if (std::filesystem::exists(single, ignored)) return OpenFile(single);
  if (!std::filesystem::exists(index, ignored)) {
    return NotFound(folder.string() +
                    ": has neither model.safetensors nor model.safetensors.index.json");
  }
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->listing_ = index.string();
  TANDEM_RETURN_IF_ERROR(checkpoint->AddIndex(index));
  return checkpoint;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::OpenFile(
    const std::filesystem::path& file) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->listing_ = file.string();
  TANDEM_RETURN_IF_ERROR(checkpoint->AddShard(file));
  return checkpoint;
}

absl::Status Checkpoint::AddShard(const std::filesystem::path& path) {
  TANDEM_ASSIGN_OR_RETURN(auto file, Safetensors::Open(path));
  for (const auto& [name, tensor] : file->tensors()) {
    const auto [place, is_new] = tensors_.emplace(name, Place{&tensor, file.get()});
    if (!is_new) {
      return InvalidArgument(path.string() + ": tensor \"" + name + "\" is also in " +
                             place->second.file->file().path().string());
    }
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status Checkpoint::AddIndex(const std::filesystem::path& path) {
  constexpr size_t kMaxShards = 1000;
  JsonLimits limits;
  limits.max_bytes = 4 << 20;
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json index, ReadJsonFile(path, limits));
  const std::string where = path.string() + ": weight_map";
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object() ||
      index["weight_map"].empty()) {
    return InvalidArgument(where + " is missing, empty or not an object");
  }
  const nlohmann::json& weight_map = index["weight_map"];
  std::set<std::string> shards;
  for (const auto& [name, shard] : weight_map.items()) {
    const std::string entry = where + ": \"" + name.substr(0, 200) + "\"";
    if (!shard.is_string()) return InvalidArgument(entry + " is not a string");
    const auto file_name = shard.get<std::string>();
    if (!IsPlainFileName(file_name)) {
      return InvalidArgument(entry + " is in \"" + file_name.substr(0, 200) +
                             "\" (want the name of a file in the same folder)");
    }
    shards.insert(file_name);
    if (shards.size() > kMaxShards) {
      return InvalidArgument(where + " names more than " + std::to_string(kMaxShards) + " shards");
    }
  }
  for (const std::string& shard : shards) {
    TANDEM_RETURN_IF_ERROR(AddShard(path.parent_path() / shard));
  }
  for (const auto& [name, shard] : weight_map.items()) {
    const auto place = tensors_.find(name);
    const auto file_name = shard.get<std::string>();
    if (place == tensors_.end() || place->second.file->file().path().filename() != file_name) {
      return InvalidArgument(where + ": \"" + name.substr(0, 200) + "\" is not in " + file_name);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const Tensor*> Checkpoint::Get(const std::string& name) const {
  const auto place = tensors_.find(name);
  if (place == tensors_.end()) {
    return NotFound(listing_ + ": tensor \"" + name + "\" is missing");
  }
  return place->second.tensor;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : tensors_) names.push_back(name);
  return names;
}

std::string Checkpoint::FileOf(const std::string& name) const {
  const auto place = tensors_.find(name);
  return place == tensors_.end() ? listing_ : place->second.file->file().path().string();
}

uint64_t Checkpoint::mapped_bytes() const {
  uint64_t bytes = 0;
  for (const auto& file : files_) bytes += file->file().bytes().size();
  return bytes;
}

void Checkpoint::WillNeed() const {
  for (const auto& file : files_) file->file().WillNeed();
}

absl::Status Checkpoint::CheckWhole() const {
  for (const auto& file : files_) TANDEM_RETURN_IF_ERROR(file->file().CheckWhole());
  return absl::OkStatus();
}

}  // namespace tandem
