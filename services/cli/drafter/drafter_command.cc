#include "services/cli/drafter/drafter_command.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/flags/suggestion.h"
#include "common/status.h"
#include "services/cli/client/draft_models_client.h"
#include "services/cli/client/listen_address.h"
#include "services/cli/supervisor/server_flags.h"
#include "services/cli/terminal/end_signals.h"
#include "services/cli/terminal/errors.h"
#include "services/cli/terminal/option_parser.h"

namespace tandem::cli {

namespace {

constexpr std::chrono::seconds kReachTimeout{5};
constexpr double kLookSeconds = 0.2;
constexpr double kFailedSeconds = 1;

struct ActionEntry {
  std::string_view name;
  DrafterAction action;
  bool names_model;
};
constexpr std::array<ActionEntry, 7> kActions = {
    {{"list", DrafterAction::kList, false},
     {"load", DrafterAction::kLoad, true},
     {"promote", DrafterAction::kPromote, false},
     {"rollback", DrafterAction::kRollBack, false},
     {"unload", DrafterAction::kUnload, true},
     {"swap-heads", DrafterAction::kSwapHeads, true},
     {"rollback-heads", DrafterAction::kRollBackHeads, false}}};

const v1::SwappableDraftModel* Find(const v1::DraftModelList& list, const std::string& name) {
  for (const v1::SwappableDraftModel& model : list.models()) {
    if (model.name() == name) return &model;
  }
  return nullptr;
}

std::string_view RoleName(v1::DraftModelRole role) {
  switch (role) {
    case v1::DRAFT_MODEL_ROLE_SERVING:
      return "serving";
    case v1::DRAFT_MODEL_ROLE_CANARY:
      return "canary";
    case v1::DRAFT_MODEL_ROLE_STANDBY:
      return "standby";
    default:
      return "unknown";
  }
}

// Says where a draft model, or the heads, can draft.
template <typename Swappable>
std::string StateOf(const Swappable& model) {
  if (model.num_pods() > 0 && model.num_attached() == model.num_pods()) return "attached";
  std::string state = model.num_loading() > 0 ? "loading" : "not attached";
  if (model.num_attached() > 0) {
    state = absl::StrFormat("attached at %d of %d pods", model.num_attached(), model.num_pods());
  }
  return model.problem().empty() ? state : absl::StrCat(state, ": ", model.problem());
}

void PrintComparison(const v1::DraftModelComparison& comparison, Console& console) {
  if (comparison.canary().empty()) return;
  console.out << "\n" << comparison.canary() << " as a canary: ";
  if (!comparison.has_ratio()) {
    console.out << "not compared yet; five of its requests and five others are needed, with at "
                   "least 8 tokens each";
  } else {
    const char* verdict = comparison.low() > 1    ? "it is faster"
                          : comparison.high() < 1 ? "it is slower"
                                                  : "no difference is shown";
    console.out << absl::StrFormat(
        "%.3fx the speed of the models that serve (95 %% interval %.3f to %.3f: %s)",
        comparison.ratio(), comparison.low(), comparison.high(), verdict);
  }
  console.out << absl::StrFormat(",\nover %d of its requests and %d of the others\n",
                                 comparison.canary_requests(), comparison.serving_requests());
}

// The heads that were asked for.
std::string WantedName(const v1::SwappableHeads& heads) {
  return heads.wanted().empty() ? "the heads of the beginning" : heads.wanted();
}

void PrintHeads(const v1::SwappableHeads& heads, Console& console) {
  console.out << "heads: ";
  if (heads.drafter().empty()) {
    console.out << "none";
  } else {
    console.out << heads.heads() << " (kind " << heads.drafter() << ")";
  }
  if (heads.has_wanted() && heads.num_attached() < heads.num_pods()) {
    console.out << "; asked for: " << WantedName(heads) << ", " << StateOf(heads);
  }
  console.out << "\n";
  if (heads.only_if_named() && !heads.drafter().empty()) {
    console.out << "Requests use heads only if they name them, because --drafters lists none.\n";
  }
  console.out.flush();
}

void Print(const v1::DraftModelList& list, Console& console) {
  size_t width = 5;
  for (const auto& model : list.models()) width = std::max(width, model.name().size());
  const auto line = [&](std::string_view name, std::string_view role, std::string_view share,
                        std::string_view state) {
    console.out << absl::StrFormat("%-*s  %-7s  %8s  %s\n", static_cast<int>(width),
                                   absl::string_view(name.data(), name.size()),
                                   absl::string_view(role.data(), role.size()),
                                   absl::string_view(share.data(), share.size()),
                                   absl::string_view(state.data(), state.size()));
  };
  if (list.models().empty()) {
    console.out << "this server has no draft model" << std::endl;
  }
  line("model", "role", "requests", "state");
  for (const v1::SwappableDraftModel& model : list.models()) {
    line(model.name(), RoleName(model.role()), absl::StrFormat("%.0f %%", 100 * model.share()),
         StateOf(model));
  }
  PrintComparison(list.comparison(), console);
  console.out.flush();
}

// A line on the terminal that shows how long a load takes.
class LoadProgress {
 public:
  explicit LoadProgress(Console& console) : console_(console) {}
  ~LoadProgress() {
    if (console_.err_is_terminal) console_.err << "\r\x1b[K" << std::flush;
  }
  LoadProgress(const LoadProgress&) = delete;
  LoadProgress& operator=(const LoadProgress&) = delete;

  // `model`: a v1::SwappableDraftModel or v1::SwappableHeads.
  template <typename Swappable>
  void Show(const std::string& name, const Swappable& model) {
    if (!console_.err_is_terminal) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    console_.err << absl::StrFormat("\rloading %s: %.0f s", name, seconds.count());
    if (model.num_pods() > 1) {
      console_.err << absl::StrFormat(", ready at %d of %d pods", model.num_attached(),
                                      model.num_pods());
    }
    console_.err << std::flush;
  }

 private:
  Console& console_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Says why a draft model, or heads, cannot draft.
template <typename Swappable>
std::string ProblemOf(const Swappable& model) {
  return model.num_pods() == 1 && !model.problem().empty() ? model.problem() : StateOf(model);
}

// What a command waits for.
struct Awaited {
  std::string name;
  double patience_seconds;  // a failure that lasts longer ends the wait
  // Gives it up, and says so.
  std::function<absl::Status(absl::StatusCode code, const std::string& why)> give_up;
};

// Waits until a model, or heads, can draft at every pod. `find` returns it in a list, or null if it
// is not wanted any more. An error says why it cannot draft, and gives it up.
template <typename Find>
DraftModelsClient::Answer Await(DraftModelsClient& client, const Awaited& awaited,
                                v1::DraftModelList list, const Find& find, Console& console) {
  LoadProgress progress(console);
  const EndSignals signals;
  int failed_looks = 0;
  while (true) {
    const auto* const found = find(list);
    if (found == nullptr) {
      return FailedPrecondition("somebody else gave up " + awaited.name +
                                ", or asked for something else");
    }
    if (found->num_attached() == found->num_pods()) return list;
    const bool has_failed = found->num_loading() == 0 && !found->problem().empty();
    failed_looks = has_failed ? failed_looks + 1 : 0;
    if (failed_looks * kLookSeconds > awaited.patience_seconds) {
      return awaited.give_up(absl::StatusCode::kFailedPrecondition, ProblemOf(*found));
    }
    progress.Show(awaited.name, *found);
    if (signals.Wait(kLookSeconds)) {
      return awaited.give_up(absl::StatusCode::kCancelled, "the load was canceled");
    }
    TANDEM_ASSIGN_OR_RETURN(list, client.List());
  }
}

DraftModelsClient::Answer Load(const std::string& name, double share, DraftModelsClient& client,
                               Console& console) {
  TANDEM_ASSIGN_OR_RETURN(v1::DraftModelList list, client.Load(name, share));
  const auto give_up = [&](absl::StatusCode code, const std::string& why) -> absl::Status {
    const absl::Status unloaded = client.Unload(name).status();
    if (unloaded.ok()) return {code, absl::StrCat(name, " was given up: ", why)};
    return {code, absl::StrCat(name, " is still loaded (", unloaded.message(), "): ", why)};
  };
  // A worker that was lost comes back within seconds.
  return Await(
      client, {name, kFailedSeconds, give_up}, std::move(list),
      [&](const v1::DraftModelList& now) { return Find(now, name); }, console);
}

// Returns the heads of a list while these are wanted, or null.
const v1::SwappableHeads* FindHeads(const v1::DraftModelList& list, const std::string& wanted) {
  return list.heads().wanted() == wanted ? &list.heads() : nullptr;
}

// Heads that cannot be loaded are rolled back, so that all verifiers have the same ones.
DraftModelsClient::Answer SwapHeads(const std::string& name, DraftModelsClient& client,
                                    Console& console) {
  TANDEM_ASSIGN_OR_RETURN(v1::DraftModelList list, client.SwapHeads(name));
  const auto give_up = [&](absl::StatusCode code, const std::string& why) -> absl::Status {
    const absl::Status rolled_back = client.RollBackHeads(name).status();
    if (rolled_back.ok()) {
      return {code, absl::StrCat(name, " was given up, and the former heads stay: ", why)};
    }
    return {code, absl::StrCat(name, " is still asked for (", rolled_back.message(), "): ", why)};
  };
  return Await(
      client, {name, 0, give_up}, std::move(list),
      [&](const v1::DraftModelList& now) { return FindHeads(now, name); }, console);
}

DraftModelsClient::Answer RollBackHeads(DraftModelsClient& client, Console& console) {
  TANDEM_ASSIGN_OR_RETURN(v1::DraftModelList list, client.RollBackHeads());
  const std::string wanted = list.heads().wanted();
  const std::string name = WantedName(list.heads());
  const auto give_up = [&](absl::StatusCode code, const std::string& why) -> absl::Status {
    return {code, absl::StrCat(name,
                               code == absl::StatusCode::kCancelled
                                   ? " may still be loaded: "
                                   : " could not be loaded, and the present heads stay: ",
                               why)};
  };
  return Await(
      client, {name, 0, give_up}, std::move(list),
      [&](const v1::DraftModelList& now) { return FindHeads(now, wanted); }, console);
}

DraftModelsClient::Answer Do(const DrafterOptions& options, DraftModelsClient& client,
                             Console& console) {
  switch (options.action) {
    case DrafterAction::kList:
      break;
    case DrafterAction::kLoad:
      return Load(options.model, options.share, client, console);
    case DrafterAction::kPromote:
      return client.Promote();
    case DrafterAction::kRollBack:
      return client.RollBack();
    case DrafterAction::kUnload:
      return client.Unload(options.model);
    case DrafterAction::kSwapHeads:
      return SwapHeads(options.model, client, console);
    case DrafterAction::kRollBackHeads:
      return RollBackHeads(client, console);
  }
  return client.List();
}

void BindDrafter(FlagParser& parser, const ActionEntry* action, DrafterOptions& options) {
  if (action == nullptr || action->names_model) {
    parser.BindArgument("NAME",
                        "Name of the draft model: for load, of its folder in --draft-folder. For "
                        "swap-heads: name of the heads' folder in --heads-folder, or none.",
                        /*required=*/action != nullptr, &options.model);
  }
  parser.Bind("--connect", &options.connect);
  parser.Bind("--share", &options.share);
  BindClientSecurity(parser, options.security);
}

constexpr char kDescription[] =
    "Swaps the draft models and the heads of a running server, whose output never depends on "
    "them.\n"
    "The server must have been started with --draft-folder DIR, which has a folder for each "
    "model,\n"
    "or with --heads-folder DIR, which has a folder for each set of heads.\n"
    "  tandem drafter list             shows the draft models, how the canary does, and the heads\n"
    "  tandem drafter load NAME        loads a model as a canary: it drafts for a share of the "
    "requests\n"
    "  tandem drafter promote          lets the canary draft for all requests\n"
    "  tandem drafter rollback         takes the last promotion back, once\n"
    "  tandem drafter unload NAME      gives a model up\n"
    "  tandem drafter swap-heads NAME  loads heads, which then replace those of all verifiers; "
    "none\n"
    "                                  takes the heads away\n"
    "  tandem drafter rollback-heads   takes the last swap of heads back; again: the one before";

}  // namespace

int ManageDrafters(const DrafterOptions& options, Console& console) {
  const auto security = ClientSecurity::Open(options.security, options.connect);
  if (!security.ok()) return PrintError(security.status(), console);
  DraftModelsClient client(options.connect, *security);
  if (const absl::Status status = client.Connect(kReachTimeout); !status.ok()) {
    return PrintServerError(status, console);
  }
  const DraftModelsClient::Answer list = Do(options, client, console);
  if (absl::IsCancelled(list.status())) {
    console.err << std::string(list.status().message()) << std::endl;
    return kExitInterrupted;
  }
  if (!list.ok()) return PrintServerError(list.status(), console);
  const bool is_about_heads = options.action == DrafterAction::kSwapHeads ||
                              options.action == DrafterAction::kRollBackHeads;
  if (!is_about_heads) Print(*list, console);
  const v1::SwappableHeads& heads = list->heads();
  if (is_about_heads || !heads.drafter().empty() || !heads.wanted().empty()) {
    PrintHeads(heads, console);
  }
  return kExitOk;
}

Parsed<DrafterOptions> ParseDrafter(std::vector<std::string> arguments) {
  const ActionEntry* action = nullptr;
  if (!arguments.empty() && !arguments.front().starts_with('-')) {
    const std::string name = std::move(arguments.front());
    arguments.erase(arguments.begin());
    std::vector<std::string> names;
    for (const ActionEntry& entry : kActions) {
      names.emplace_back(entry.name);
      if (entry.name == name) action = &entry;
    }
    if (action == nullptr) {
      return MakeUsageError(
          Program::kDrafterCommand,
          absl::StrCat("there is no \"tandem drafter ", name, "\"", DidYouMean(name, names)));
    }
  }
  return ParseOptions<DrafterOptions>(
      Program::kDrafterCommand, kDescription, std::move(arguments),
      [action](FlagParser& parser, DrafterOptions& options) {
        BindDrafter(parser, action, options);
      },
      [action](const FlagParser& parser, DrafterOptions& options) -> std::string {
        if (action == nullptr)
          return "list, load, promote, rollback, unload, swap-heads or rollback-heads is needed";
        options.action = action->action;
        if (parser.IsTyped("--share") && action->action != DrafterAction::kLoad) {
          return "--share is for load";
        }
        if (options.connect.empty()) {
          return "--connect ADDRESS (or TANDEM_ADDRESS) says which server is meant";
        }
        const auto address = ParseListenAddress(options.connect, "--connect");
        return address.ok() ? "" : std::string(address.status().message());
      });
}

}  // namespace tandem::cli
