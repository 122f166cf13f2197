#include "services/cli/drafter/drafter_command.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/flags/suggestion.h"
#include "common/status.h"
#include "services/cli/client/draft_models_client.h"
#include "services/cli/client/listen_address.h"
#include "services/cli/supervisor/server_flags.h"
#include "services/cli/terminal/errors.h"
#include "services/cli/terminal/option_parser.h"

namespace tandem::cli {

namespace {

constexpr std::chrono::seconds kReachTimeout{5};
constexpr std::chrono::milliseconds kLookPause{200};

struct ActionEntry {
  std::string_view name;
  DrafterAction action;
  bool names_model;
};
constexpr std::array<ActionEntry, 5> kActions = {{{"list", DrafterAction::kList, false},
                                                  {"load", DrafterAction::kLoad, true},
                                                  {"promote", DrafterAction::kPromote, false},
                                                  {"rollback", DrafterAction::kRollBack, false},
                                                  {"unload", DrafterAction::kUnload, true}}};

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

std::string StateOf(const v1::SwappableDraftModel& model) {
  if (model.attached()) return "attached";
  if (!model.problem().empty()) return "not attached: " + model.problem();
  return model.loading() ? "loading" : "not attached";
}

std::string ShareOf(const v1::SwappableDraftModel& model, double canary_share) {
  double share = 0;
  if (model.role() == v1::DRAFT_MODEL_ROLE_CANARY) share = canary_share;
  if (model.role() == v1::DRAFT_MODEL_ROLE_SERVING) share = 1 - canary_share;
  return absl::StrFormat("%.0f %%", 100 * share);
}

void PrintComparison(const v1::DraftModelComparison& comparison, Console& console) {
  if (comparison.canary_requests() + comparison.serving_requests() == 0) return;
  const std::string requests =
      absl::StrFormat("%d requests of the canary and %d of the models that serve",
                      comparison.canary_requests(), comparison.serving_requests());
  if (comparison.has_ratio()) {
    console.out << absl::StrFormat(
        "canary: %.3fx the speed (95 %% interval %.3f to %.3f), over %s\n", comparison.ratio(),
        comparison.low(), comparison.high(), requests);
  } else {
    console.out << "canary: " << requests << "; five of each are needed for a comparison\n";
  }
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
    return;
  }
  line("model", "role", "requests", "state");
  for (const v1::SwappableDraftModel& model : list.models()) {
    line(model.name().empty() ? "?" : model.name(), RoleName(model.role()),
         ShareOf(model, list.canary_share()), StateOf(model));
  }
  PrintComparison(list.comparison(), console);
  console.out.flush();
}

// Waits until the model can draft. An error says why it cannot, and unloads it.
DraftModelsClient::Answer AwaitLoaded(DraftModelsClient& client, const std::string& name,
                                      v1::DraftModelList list, Console& console) {
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    const v1::SwappableDraftModel* model = Find(list, name);
    if (model == nullptr) return FailedPrecondition("somebody else unloaded " + name);
    if (model->attached()) {
      if (console.err_is_terminal) console.err << "\r\x1b[K" << std::flush;
      return list;
    }
    if (!model->problem().empty()) {
      if (console.err_is_terminal) console.err << "\r\x1b[K" << std::flush;
      const std::string why = model->problem();
      TANDEM_RETURN_IF_ERROR(client.Unload(name).status());
      return FailedPrecondition(absl::StrCat(name, " cannot draft here, and was unloaded: ", why));
    }
    if (console.err_is_terminal) {
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      console.err << absl::StrFormat("\rloading %s: %.0f s", name, seconds.count()) << std::flush;
    }
    std::this_thread::sleep_for(kLookPause);
    TANDEM_ASSIGN_OR_RETURN(list, client.List());
  }
}

DraftModelsClient::Answer Do(const DrafterOptions& options, DraftModelsClient& client,
                             Console& console) {
  switch (options.action) {
    case DrafterAction::kList:
      break;
    case DrafterAction::kLoad: {
      TANDEM_ASSIGN_OR_RETURN(v1::DraftModelList list, client.Load(options.model, options.share));
      return AwaitLoaded(client, options.model, std::move(list), console);
    }
    case DrafterAction::kPromote:
      return client.Promote();
    case DrafterAction::kRollBack:
      return client.RollBack();
    case DrafterAction::kUnload:
      return client.Unload(options.model);
  }
  return client.List();
}

void BindDrafter(FlagParser& parser, const ActionEntry* action, DrafterOptions& options) {
  if (action == nullptr || action->names_model) {
    parser.BindArgument("NAME",
                        "Name of the draft model: for load, of its folder in --draft-folder.",
                        /*required=*/action != nullptr, &options.model);
  }
  parser.Bind("--connect", &options.connect);
  parser.Bind("--share", &options.share);
  BindClientSecurity(parser, options.security);
}

constexpr char kDescription[] =
    "Swaps the draft models of a running server, whose output never depends on them.\n"
    "  tandem drafter list         shows the draft models, and how the canary does\n"
    "  tandem drafter load NAME    loads a model as a canary: it drafts for a share of the "
    "requests\n"
    "  tandem drafter promote      lets the canary draft for all requests\n"
    "  tandem drafter rollback     takes that back\n"
    "  tandem drafter unload NAME  gives a model up";

}  // namespace

int ManageDrafters(const DrafterOptions& options, Console& console) {
  const auto security = ClientSecurity::Open(options.security, options.connect);
  if (!security.ok()) return PrintError(security.status(), console);
  DraftModelsClient client(options.connect, *security);
  if (const absl::Status status = client.Connect(kReachTimeout); !status.ok()) {
    return PrintServerError(status, console);
  }
  const DraftModelsClient::Answer list = Do(options, client, console);
  if (!list.ok()) return PrintServerError(list.status(), console);
  Print(*list, console);
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
        if (action == nullptr) return "list, load, promote, rollback or unload is needed";
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
