#include "services/cli/commands/healthcheck_command.h"

#include <utility>

#include "common/status.h"
#include "services/cli/client/http_get.h"
#include "services/cli/client/listen_address.h"
#include "services/cli/terminal/errors.h"
#include "services/cli/terminal/option_parser.h"

namespace tandem::cli {

namespace {

constexpr double kAnswerSeconds = 4;  // below the 5 s of the image's HEALTHCHECK
constexpr char kReadyPage[] = "/readyz";

void BindHealthcheck(FlagParser& parser, HealthcheckOptions& options) {
  parser.Bind("--admin", &options.admin);
  parser.Bind("--tls", &options.tls);
}

}  // namespace

int Healthcheck(const HealthcheckOptions& options, Console& console) {
  const auto address = ParseListenAddress(options.admin, "--admin");
  if (!address.ok()) return PrintError(address.status(), console);
  if (!address->unix_path.empty() || address->port == 0) {
    return PrintError(
        InvalidArgument("--admin: got \"" + options.admin + "\", want HOST:PORT of an --admin"),
        console);
  }
  const auto answer =
      options.tls ? HttpsGetFromAnyone(address->host, address->port, kReadyPage, kAnswerSeconds)
                  : HttpGet(address->host, address->port, kReadyPage, kAnswerSeconds);
  if (!answer.ok()) return PrintServerError(answer.status(), console);
  return kExitOk;
}

Parsed<HealthcheckOptions> ParseHealthcheck(std::vector<std::string> arguments) {
  return ParseOptions<HealthcheckOptions>(
      Program::kHealthcheck,
      "Exits with 0 if the process with this admin address reports that it is ready. Otherwise it\n"
      "exits with 1 and says why. It asks without a token and does not check who answers: it is "
      "for\n"
      "probes on the same machine.",
      std::move(arguments), BindHealthcheck,
      [](const FlagParser&, HealthcheckOptions&) { return ""; });
}

}  // namespace tandem::cli
