#include "common/model/checkpoint/foreign_model.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

constexpr char kWanted[] = " (want a model's folder in Hugging Face layout)";
constexpr size_t kMostFilesLookedAt = 10000;  // files of a folder that are looked at

// Returns the first bytes of a file, or nothing if it cannot be read.
std::string FirstBytes(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return "";
  std::array<char, 64> bytes{};
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), bytes.size());
  return {bytes.data(), static_cast<size_t>(file.gcount())};
}

// Returns true for OWNER/NAME, as hubs name repositories.
bool LooksLikeHubName(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size()) return false;
  if (text.find('/', slash + 1) != std::string::npos || text.front() == '.') return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

absl::Status Missing(const fs::path& folder) {
  const std::string text = folder.string();
  if (!LooksLikeHubName(text))
    return InvalidArgument(absl::StrCat(text, " does not exist", kWanted));
  return InvalidArgument(absl::StrCat(
      text,
      " does not exist here. If it is the name of a repository on the Hugging Face hub: "
      "Tandem downloads nothing, so download it first (hf download ",
      text, " --local-dir ", folder.filename().string(), ") and give the folder"));
}

absl::Status NoFolder(const fs::path& path) {
  const std::string what = ExplainForeignFile(FirstBytes(path));
  if (!what.empty()) return InvalidArgument(absl::StrCat(path.string(), " ", what));
  const std::string name = path.filename().string();
  if (name.ends_with(".safetensors") || name.ends_with(".json")) {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    return InvalidArgument(absl::StrCat(
        path.string(), " is a file; give the folder that it is in: ", folder.string()));
  }
  return InvalidArgument(absl::StrCat(path.string(), " is not a folder", kWanted));
}

std::vector<fs::path> Entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(entry->path());
    if (entries.size() == kMostFilesLookedAt) break;
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Says what a folder that is no model holds instead, from its entries.
std::string ExplainFolder(const std::vector<fs::path>& beside) {
  if (beside.empty()) return "; it is empty";
  for (const fs::path& path : beside) {
    const std::string name = path.filename().string();
    if (name.ends_with(".gguf")) {
      return absl::StrCat("; it holds ", name, ", which ", ExplainForeignFile("GGUF"));
    }
    if (name == "adapter_config.json") {
      return "; it holds an adapter (LoRA), which is no model by itself: merge it into its base "
             "model (merge_and_unload of peft) and give the result";
    }
    if (name == "snapshots") {
      return "; it is a folder of the hub's cache: give the folder under snapshots/";
    }
    if (name.ends_with(".bin") || name.ends_with(".pth") || name.ends_with(".pt")) {
      return absl::StrCat("; it holds ", name,
                          ", but Tandem reads safetensors files only: load it with transformers, "
                          "and write it with save_pretrained");
    }
  }
  return "";
}

}  // namespace

std::string ExplainForeignFile(std::string_view bytes) {
  if (bytes.starts_with("version https://git-lfs")) {
    return "is a Git LFS pointer and not the file itself: run \"git lfs pull\" in its folder";
  }
  if (bytes.starts_with("GGUF")) {
    return "is a GGUF file of llama.cpp. Tandem reads safetensors files: give the folder of the "
           "original model";
  }
  if (bytes.starts_with("PK\x03\x04") || bytes.starts_with("\x80\x02")) {
    return "is a file of torch.save. Tandem reads safetensors files: load it with transformers, "
           "and write it with save_pretrained";
  }
  if (bytes.starts_with("<!DOCTYPE") || bytes.starts_with("<html")) {
    return "is a web page and not the file itself: download it again";
  }
  return "";
}

absl::Status CheckModelFolder(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) return Missing(folder);
  if (!fs::is_directory(folder, ignored)) return NoFolder(folder);
  const std::vector<fs::path> entries = Entries(folder);
  const auto missing = [&](const std::string& what) {
    return InvalidArgument(absl::StrCat(folder.string(), " has ", what, ExplainFolder(entries)));
  };
  if (!fs::exists(folder / "config.json", ignored)) return missing("no config.json");
  if (!fs::exists(folder / "model.safetensors", ignored) &&
      !fs::exists(folder / "model.safetensors.index.json", ignored)) {
    return missing("neither model.safetensors nor model.safetensors.index.json");
  }
  for (const fs::path& path : entries) {
    const std::string name = path.filename().string();
    if (!name.ends_with(".safetensors") && !name.ends_with(".json")) continue;
    const std::string what = ExplainForeignFile(FirstBytes(path));
    if (!what.empty()) return InvalidArgument(absl::StrCat(path.string(), " ", what));
  }
  return absl::OkStatus();
}

}  // namespace tandem
