#include "services/cli/bench/bench_heads.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "services/cli/supervisor/lookup_names.h"
#include "services/cli/supervisor/server_plan.h"

namespace tandem::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::milliseconds kLook{10};
// A verifier that has not loaded heads after this time is taken not to do it any more.
constexpr std::chrono::seconds kLongestLoad{300};

// Returns the folders in a folder that have a config.json.
std::vector<std::string> FoldersIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    const std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && name != kNoHeads &&
        fs::exists(entry->path() / "config.json", ignored)) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Puts a link to each folder into one folder. Two folders of one name get the names of their parent
// folders too.
absl::StatusOr<HeadsPlan> LinkHeads(const std::vector<std::string>& folders) {
  std::vector<fs::path> paths;
  std::map<std::string, int> uses;
  std::set<fs::path> seen;
  for (const std::string& folder : folders) {
    std::error_code ignored;
    if (folder.empty() || !fs::is_directory(folder, ignored)) {
      return InvalidArgument(absl::StrCat("--heads: got \"", folder,
                                          "\", which is no folder (want folders of heads, with "
                                          "commas between them)"));
    }
    paths.push_back(fs::absolute(fs::path(folder) / "").lexically_normal().parent_path());
    if (paths.back().filename() == kNoHeads) {
      return InvalidArgument(absl::StrCat("--heads: got \"", folder, "\", which is called ",
                                          kNoHeads, " (give a folder of another name)"));
    }
    if (!seen.insert(paths.back()).second) {
      return InvalidArgument("--heads: " + folder + " is given twice");
    }
    ++uses[paths.back().filename()];
  }
  HeadsPlan plan;
  plan.source = "--heads";
  TANDEM_ASSIGN_OR_RETURN(plan.links, RuntimeDirectory::Create());
  for (const fs::path& path : paths) {
    std::string name = path.filename();
    if (uses[name] > 1) name = path.parent_path().filename().string() + "-" + name;
    std::error_code error;
    fs::create_directory_symlink(path, plan.links->path() / name, error);
    if (error) {
      return InvalidArgument(absl::StrCat("--heads: two folders are called ", name,
                                          " (give folders of different names)"));
    }
    plan.names.push_back(std::move(name));
  }
  return plan;
}

// Returns a message of the verifier with the folders that the user gave, instead of links to them.
std::string WithoutLinks(const HeadsPlan& plan, const std::string& name,
                         const std::string& message) {
  if (plan.links == nullptr) return message;
  const fs::path link = plan.links->path() / name;
  std::error_code ignored;
  return absl::StrReplaceAll(message, {{link.string(), fs::read_symlink(link, ignored).string()}});
}

// Returns the heads of the embedded pair whose kind is one of `kinds`.
absl::StatusOr<std::pair<HeadsPlan, fs::path>> EmbeddedHeads(
    const ServerOptions& server, const std::vector<std::string>& kinds) {
  ServerOptions without_heads = server;
  without_heads.self_drafter.clear();
  TANDEM_ASSIGN_OR_RETURN(const ModelFolders models, FindModels(without_heads));
  const fs::path pair = models.target.folder.parent_path();
  HeadsPlan plan;
  plan.source = pair.string();
  for (const std::string_view kind : kSelfDrafterNames) {
    const bool is_wanted =
        kinds.empty() || std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    std::error_code ignored;
    if (is_wanted && fs::is_directory(pair / kind, ignored)) plan.names.emplace_back(kind);
  }
  return std::pair(std::move(plan), pair);
}

}  // namespace

absl::StatusOr<HeadsPlan> PlanHeads(BenchOptions& options) {
  ServerOptions& server = options.session.server;
  FlagTexts& flags = server.handed_on;
  const bool compares = options.compares_all_heads() || !options.KindsOfHeads().empty();
  if (!options.session.connect.empty()) return HeadsPlan();

  const auto given = flags.find("--heads");
  const auto folder = flags.find("--heads-folder");
  std::vector<std::string> folders;
  std::error_code ignored;
  if (given != flags.end()) {
    folders = {given->second};
    if (!fs::is_directory(given->second, ignored)) folders = absl::StrSplit(given->second, ',');
  }
  if (folders.size() > 1) {
    if (folder != flags.end()) {
      return InvalidArgument(
          "--heads: got several folders beside --heads-folder, allowed: one of the two flags");
    }
    TANDEM_ASSIGN_OR_RETURN(HeadsPlan plan, LinkHeads(folders));
    flags.erase("--heads");
    flags["--heads-folder"] = plan.links->path().string();
    server.self_drafter.clear();
    return plan;
  }
  if (!compares || given != flags.end()) return HeadsPlan();
  if (folder != flags.end()) {
    if (!fs::is_directory(folder->second, ignored)) {
      return InvalidArgument("--heads-folder: " + folder->second +
                             " is no folder (want a folder with folders of heads)");
    }
    HeadsPlan plan;
    plan.names = FoldersIn(folder->second);
    plan.source = "--heads-folder " + folder->second;
    plan.must_work = false;
    if (plan.names.empty()) {
      return InvalidArgument(plan.source +
                             ": has no folder with a config.json (want a folder with folders of "
                             "heads)");
    }
    server.self_drafter.clear();
    return plan;
  }
  const bool is_embedded = server.target.empty();
  if (!is_embedded || (!options.compares_all_heads() && options.KindsOfHeads().size() == 1)) {
    return HeadsPlan();
  }
  TANDEM_ASSIGN_OR_RETURN(
      auto embedded, EmbeddedHeads(server, options.compares_all_heads() ? std::vector<std::string>()
                                                                        : options.KindsOfHeads()));
  flags["--heads-folder"] = embedded.second.string();
  server.self_drafter.clear();
  return std::move(embedded.first);
}

HeadsSwitch::HeadsSwitch(const GenerationClient& generation)
    : generation_(generation), client_(generation.address(), generation.security()) {}

absl::StatusOr<std::string> HeadsSwitch::Use(const std::string& name) {
  TANDEM_ASSIGN_OR_RETURN(v1::DraftModelList list, client_.SwapHeads(name));
  const auto deadline = std::chrono::steady_clock::now() + kLongestLoad;
  while (true) {
    const v1::SwappableHeads& heads = list.heads();
    if (heads.num_attached() == heads.num_pods()) return heads.drafter();
    if (heads.num_loading() == 0 && !heads.problem().empty()) {
      return FailedPrecondition(heads.problem());
    }
    if (generation_.canceled()) return absl::CancelledError("interrupted");
    if (std::chrono::steady_clock::now() > deadline) {
      return FailedPrecondition(absl::StrCat("they were not loaded within ", kLongestLoad.count(),
                                             " seconds (the server's log says why: --verbose)"));
    }
    std::this_thread::sleep_for(kLook);
    TANDEM_ASSIGN_OR_RETURN(list, client_.List());
  }
}

absl::StatusOr<std::vector<BenchHeads>> HeadsSwitch::Find(const HeadsPlan& plan,
                                                          const std::vector<std::string>& kinds,
                                                          Console& console) {
  std::vector<BenchHeads> found;
  std::vector<std::string> known;  // "my-heads (eagle)"
  for (const std::string& name : plan.names) {
    const absl::StatusOr<std::string> kind = Use(name);
    if (absl::IsCancelled(kind.status())) return kind.status();
    if (!kind.ok()) {
      const std::string why = absl::StrCat(
          plan.source, ": the heads ", name,
          " cannot be used: ", WithoutLinks(plan, name, std::string(kind.status().message())));
      if (plan.must_work) return InvalidArgument(why);
      console.err << "bench: " << why << "; they are left out" << std::endl;
      continue;
    }
    known.push_back(absl::StrCat(name, " (", *kind, ")"));
    const bool is_wanted =
        kinds.empty() || std::find(kinds.begin(), kinds.end(), *kind) != kinds.end();
    if (is_wanted) found.push_back({name, *kind});
  }
  for (const std::string& kind : kinds) {
    const bool has_kind = std::any_of(found.begin(), found.end(), [&kind](const BenchHeads& heads) {
      return heads.kind == kind;
    });
    if (!has_kind) {
      return InvalidArgument(absl::StrCat(
          "--drafters: got ", kind, ", but no heads of this kind are among those of ", plan.source,
          known.empty() ? ", of which none fit the target"
                        : absl::StrCat(", which has ", absl::StrJoin(known, ", "))));
    }
  }
  return found;
}

}  // namespace tandem::cli
