#include "common/chat/template_files.h"

#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

// tokenizer_config.json of a model with thousands of added tokens has a few megabytes.
constexpr uint64_t kMostFileBytes = uint64_t{64} << 20;

absl::StatusOr<std::string> ReadText(const std::filesystem::path& path) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error) return InvalidArgument(absl::StrCat(path.string(), ": ", error.message()));
  if (size > kMostFileBytes) {
    return InvalidArgument(absl::StrCat(path.string(), ": has ", size, " bytes, at most ",
                                        kMostFileBytes, " are allowed"));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || !text) return InvalidArgument(absl::StrCat(path.string(), ": cannot be read"));
  return std::move(text).str();
}

// Returns an empty object where there is no such file.
absl::StatusOr<OrderedJson> ReadConfig(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return OrderedJson::object();
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  OrderedJson object = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return InvalidArgument(absl::StrCat(path.string(), ": want a JSON object"));
  }
  return object;
}

// Adds bos_token and the like. A token is a text, or an object with the text as its content.
void AddSpecialTokens(const OrderedJson& config, OrderedJson& tokens) {
  for (const auto& [key, value] : config.items()) {
    if (!absl::EndsWith(key, "_token") || tokens.contains(key)) continue;
    if (value.is_string()) {
      tokens[key] = value;
    } else if (value.is_object() && value.contains("content") && value["content"].is_string()) {
      tokens[key] = value["content"];
    }
  }
}

absl::Status ReadFolderTemplates(const std::filesystem::path& folder, TemplateFiles& files) {
  const std::filesystem::path main = folder / "chat_template.jinja";
  files.place = main.string();
  TANDEM_ASSIGN_OR_RETURN(files.templates["default"], ReadText(main));
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder / "additional_chat_templates", error), end;
       !error && entry != end; entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    if (path.extension() != ".jinja") continue;
    TANDEM_ASSIGN_OR_RETURN(files.templates[path.stem().string()], ReadText(path));
  }
  return absl::OkStatus();
}

absl::Status ReadConfigTemplates(const OrderedJson& config, const std::string& path,
                                 TemplateFiles& files) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return absl::OkStatus();
  files.place = absl::StrCat(path, ": chat_template");
  if (found->is_string()) {
    files.templates["default"] = found->get<std::string>();
    return absl::OkStatus();
  }
  absl::Status bad = InvalidArgument(
      absl::StrCat(files.place, ": want a text, or a list of objects with a name and a template"));
  if (!found->is_array()) return bad;
  for (const OrderedJson& item : *found) {
    if (!item.is_object() || !item.contains("name") || !item["name"].is_string() ||
        !item.contains("template") || !item["template"].is_string()) {
      return bad;
    }
    files.templates[item["name"].get<std::string>()] = item["template"].get<std::string>();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TemplateFiles> TemplateFiles::Read(
    const std::filesystem::path& folder, const std::optional<std::filesystem::path>& file) {
  TemplateFiles files;
  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  TANDEM_ASSIGN_OR_RETURN(const OrderedJson config, ReadConfig(config_path));
  AddSpecialTokens(config, files.special_tokens);
  TANDEM_ASSIGN_OR_RETURN(const OrderedJson map, ReadConfig(folder / "special_tokens_map.json"));
  AddSpecialTokens(map, files.special_tokens);
  if (file.has_value()) {
    files.place = file->string();
    TANDEM_ASSIGN_OR_RETURN(files.templates["default"], ReadText(*file));
  } else if (std::filesystem::exists(folder / "chat_template.jinja")) {
    TANDEM_RETURN_IF_ERROR(ReadFolderTemplates(folder, files));
  } else {
    TANDEM_RETURN_IF_ERROR(ReadConfigTemplates(config, config_path.string(), files));
  }
  return files;
}

}  // namespace tandem
