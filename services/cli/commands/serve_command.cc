#include "services/cli/commands/serve_command.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <memory>
#include <string>

#include "services/cli/supervisor/runtime_directory.h"
#include "services/cli/supervisor/serve_log.h"
#include "services/cli/supervisor/server_plan.h"
#include "services/cli/supervisor/supervisor.h"
#include "services/cli/terminal/errors.h"

namespace tandem::cli {

namespace {

std::string Describe(const ModelFolders& models, const ServerOptions& options) {
  // "tales/target" is clearer than "target".
  const auto name = [](const std::filesystem::path& folder) {
    const auto absolute = std::filesystem::absolute(folder).lexically_normal();
    const auto parent = absolute.parent_path().filename();
    return (parent / absolute.filename()).string();
  };
  if (models.drafts.empty()) {
    const std::string lookups = LookupsOf(options);
    return name(models.target.folder) + " without a draft model" +
           (lookups.empty() ? "" : ", with lookups (" + lookups + ")");
  }
  std::string drafters;
  for (const NamedModel& draft : models.drafts) {
    drafters += (drafters.empty() ? "" : " and ") + name(draft.folder);
  }
  return name(models.target.folder) + " with the drafter" +
         (models.drafts.size() > 1 ? "s " : " ") + drafters;
}

// Returns the flags that a client on this machine needs besides the address.
std::string ClientFlags(const ServerSecurityOptions& security, const std::string& address) {
  std::string flags;
  if (!security.tls.certificate.empty() && address.rfind("unix:", 0) != 0) {
    flags += " --tls-ca CA";
    if (!security.tls.authorities.empty()) flags += " --tls-certificate FILE --tls-key FILE";
  }
  if (!security.token_file.empty()) flags += " --token-file " + security.token_file;
  return flags;
}

}  // namespace

int Serve(const ServerOptions& options, ColorMode color, Console& console) {
  spdlog::set_level(spdlog::level::off);  // the router logs problems with files already
  ServeLog log(options.log_format == "json", Palette(WantsColor(color, console.err_is_terminal)),
               console.err);
  const auto fail = [&](const absl::Status& status) {
    if (!log.json()) return PrintError(status, console);
    log.Say("error", std::string(status.message()));
    return ExitCode(status);
  };
  const auto models = FindModels(options);
  if (!models.ok()) return fail(models.status());
  auto runtime = RuntimeDirectory::Create();
  if (!runtime.ok()) return fail(runtime.status());
  auto plan = PlanServer(options, *models, **runtime, ExecutableFolder());
  if (!plan.ok()) return fail(plan.status());
  if (models->drafts.empty() && options.drafter != "none" && LookupsOf(options).empty()) {
    log.Say("info", kNoDrafterNote);
  }

  boost::asio::io_context io;
  boost::asio::signal_set signals(io, SIGINT, SIGTERM, SIGHUP);
  absl::Status result;
  bool killed = false;
  Supervisor supervisor(
      io, *std::move(plan),
      {.ready =
           [&](const std::string& address) {
             console.out << "ready: " << address << std::endl;
             log.Say("info", "serving " + Describe(*models, options) +
                                 "; try: tandem generate --connect " + address +
                                 ClientFlags(options.security, address) + " \"Once upon a time\"");
           },
       .http =
           [&](const std::string& address) {
             console.out << "http: " << address << std::endl;
             log.Say("info", "OpenAI's API is at http://" + address + "/v1");
           },
       .stopped =
           [&](const absl::Status& status) {
             result = status;
             boost::system::error_code ignored;
             signals.cancel(ignored);
           },
       .log = [&](const std::string& name, const std::string& line) { log.Line(name, line); }});
  signals.async_wait([&](const auto& error, int) {
    if (error) return;
    supervisor.Stop();
    signals.async_wait([&](const auto& second_error, int) {
      if (second_error) return;
      killed = true;
      supervisor.Kill();
    });
  });
  supervisor.Start();
  io.run();
  if (killed) return kExitInterrupted;
  if (!result.ok()) return fail(result);
  return kExitOk;
}

}  // namespace tandem::cli
