#include "services/cli/commands/top_command.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "services/cli/client/generation_client.h"
#include "services/cli/client/http_get.h"
#include "services/cli/client/listen_address.h"
#include "services/cli/commands/top_view.h"
#include "services/cli/supervisor/server_flags.h"
#include "services/cli/terminal/end_signals.h"
#include "services/cli/terminal/errors.h"
#include "services/cli/terminal/option_parser.h"
#include "services/cli/terminal/terminal_size.h"

namespace tandem::cli {

namespace {

constexpr std::chrono::seconds kAnswerTimeout{5};
constexpr double kPageSeconds = 5;
constexpr char kHideCursor[] = "\x1b[?25l";
constexpr char kShowCursor[] = "\x1b[?25h";
constexpr char kClear[] = "\x1b[H\x1b[J";

absl::Status Refresh(const ListenAddress& address, const ClientSecurity& security, TopView* view) {
  const auto json =
      HttpGet(address.host, address.port, absl::StrFormat("/live.json?since=%.6f", view->since()),
              kPageSeconds, security);
  if (!json.ok()) return json.status();
  return view->Take(*json);
}

void BindTop(FlagParser& parser, TopOptions& options) {
  parser.Bind("--admin", &options.admin);
  parser.Bind("--connect", &options.connect);
  parser.Bind("--interval", &options.interval);
  parser.Bind("--once", &options.once);
  BindClientSecurity(parser, options.security);
  BindColor(parser, options.color);
}

std::string CheckTop(const FlagParser& parser, TopOptions& options) {
  if (!parser.IsTyped("--admin")) return "";
  if (parser.IsTyped("--connect")) return "give --connect or --admin, not both";
  options.connect.clear();  // TANDEM_ADDRESS has no effect beside --admin
  return "";
}

// Asks a router where its admin server is. An address of any interface is reached where the router
// is.
absl::StatusOr<std::string> FindAdmin(const TopOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const ListenAddress router,
                          ParseListenAddress(options.connect, "--connect"));
  TANDEM_ASSIGN_OR_RETURN(const ClientSecurity security,
                          ClientSecurity::Open(options.security, options.connect));
  GenerationClient client(options.connect, security);
  TANDEM_RETURN_IF_ERROR(client.Connect(kAnswerTimeout));
  TANDEM_ASSIGN_OR_RETURN(const v1::ServerInfo info, client.GetServerInfo());
  if (info.admin_address().empty()) {
    return FailedPrecondition("the server at " + options.connect +
                              " has no admin address (--admin none)");
  }
  TANDEM_ASSIGN_OR_RETURN(const ListenAddress admin, ParseListenAddress(info.admin_address()));
  if (router.unix_path.empty() && (admin.host == "0.0.0.0" || admin.host == "::")) {
    return absl::StrCat(
        router.host.find(':') == std::string::npos ? router.host : "[" + router.host + "]", ":",
        admin.port);
  }
  if (IsLocal(admin) && !IsLocal(router)) {
    return FailedPrecondition("the server's admin address is " + info.admin_address() +
                              ", which is reached only on its own machine");
  }
  return info.admin_address();
}

}  // namespace

int Top(const TopOptions& given, Console& console) {
  TopOptions options = given;
  if (!options.connect.empty()) {
    const auto found = FindAdmin(options);
    if (!found.ok()) return PrintServerError(found.status(), console);
    options.admin = *found;
  }
  const auto address = ParseListenAddress(options.admin, "--admin");
  if (!address.ok()) return PrintError(address.status(), console);
  if (!address->unix_path.empty() || address->port == 0) {
    return PrintError(InvalidArgument("--admin: got \"" + options.admin +
                                      "\", want HOST:PORT of a router's --admin"),
                      console);
  }
  const auto security = ClientSecurity::Open(options.security, options.admin);
  if (!security.ok()) return PrintError(security.status(), console);
  const Palette palette(WantsColor(options.color, console.out_is_terminal));
  TopView view;
  absl::Status status = Refresh(*address, *security, &view);
  if (!status.ok()) {
    return PrintServerError(
        absl::Status(status.code(), std::string(status.message()) +
                                        " (--admin names the admin address of a router; tandem "
                                        "serve logs its own)"),
        console);
  }
  if (options.once || !console.out_is_terminal) {
    console.out << view.Render(kDefaultWidth, palette) << std::flush;
    return kExitOk;
  }
  const EndSignals signals;
  console.out << kHideCursor;
  do {
    console.out << kClear << view.Render(GetTerminalSize().width, palette);
    if (!status.ok()) console.out << palette.Bad(std::string(status.message())) << "\n";
    console.out << palette.Dim("Ctrl-C ends") << std::flush;
    if (signals.Wait(options.interval)) break;
    status = Refresh(*address, *security, &view);
  } while (true);
  console.out << "\n" << kShowCursor << std::flush;
  return kExitOk;
}

Parsed<TopOptions> ParseTop(std::vector<std::string> arguments) {
  return ParseOptions<TopOptions>(Program::kTop,
                                  "Shows what a router does: tokens per second, acceptance, "
                                  "rounds, slots, KV cache and events.\n"
                                  "The live page at the router's admin address shows the same.",
                                  std::move(arguments), BindTop, CheckTop);
}

}  // namespace tandem::cli
