#include "services/router/server/target_folder.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "common/status.h"

namespace tandem {
namespace {

constexpr uintmax_t kMaxConfigBytes = 1 << 20;
constexpr size_t kMaxEndOfTextIds = 64;
constexpr int kMaxJsonDepth = 16;
constexpr size_t kMaxShownBytes = 80;

// Returns the field `eos_token_id` of one file: a number, a list of numbers, null or missing.
// Returns no ids if the file does not exist.
absl::StatusOr<std::vector<int32_t>> ReadEndOfTextIds(const std::filesystem::path& path,
                                                      size_t num_entries) {
  std::vector<int32_t> ids;
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return ids;
  if (bytes > kMaxConfigBytes) {
    return InvalidArgument(path.string() + ": has " + std::to_string(bytes) +
                           " bytes, allowed: at most " + std::to_string(kMaxConfigBytes));
  }
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  // Deeper values are left out, because printing them in an error would take a call for each level.
  const auto is_shallow = [](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    return depth <= kMaxJsonDepth;
  };
  const nlohmann::json json =
      nlohmann::json::parse(text.str(), is_shallow, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgument(path.string() + ": is not a JSON object");
  const auto field = json.find("eos_token_id");
  if (field == json.end() || field->is_null()) return ids;
  const nlohmann::json list = field->is_array() ? *field : nlohmann::json::array({*field});
  if (list.size() > kMaxEndOfTextIds) {
    return InvalidArgument(path.string() + ": eos_token_id has " + std::to_string(list.size()) +
                           " entries, allowed: at most " + std::to_string(kMaxEndOfTextIds));
  }
  for (const nlohmann::json& id : list) {
    if (!id.is_number_integer() || id < 0 || id >= num_entries) {
      return InvalidArgument(path.string() + ": eos_token_id: got " +
                             id.dump().substr(0, kMaxShownBytes) +
                             ", allowed: token ids from 0 to " + std::to_string(num_entries - 1));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace

absl::StatusOr<TargetFolder> TargetFolder::Load(const std::filesystem::path& folder) {
  TargetFolder loaded;
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(folder, error);
  if (error) return NotFound("--target: " + folder.string() + ": " + error.message());
  loaded.name = real.filename().string();
  TANDEM_ASSIGN_OR_RETURN(loaded.tokenizer, Tokenizer::Load(real));
  for (const char* file : {"generation_config.json", "config.json"}) {
    TANDEM_ASSIGN_OR_RETURN(loaded.end_of_text_ids,
                            ReadEndOfTextIds(real / file, loaded.tokenizer->num_entries()));
    if (!loaded.end_of_text_ids.empty()) break;
  }
  return loaded;
}

}  // namespace tandem
