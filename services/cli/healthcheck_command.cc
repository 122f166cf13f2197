#include "services/cli/healthcheck_command.h"

#include "common/status.h"
#include "services/cli/errors.h"
#include "services/cli/http_get.h"
#include "services/cli/listen_address.h"

namespace tandem::cli {

namespace {

constexpr double kAnswerSeconds = 4;  // less than the 5 that the image's HEALTHCHECK waits
constexpr char kReadyPage[] = "/readyz";

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

}  // namespace tandem::cli
