#include "services/cli/serve_command.h"

#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <memory>
#include <string>

#include "services/cli/errors.h"
#include "services/cli/runtime_directory.h"
#include "services/cli/server_plan.h"
#include "services/cli/supervisor.h"

namespace tandem::cli {

namespace {

std::string Describe(const ModelFolders& models) {
  // "tales/target" says more than "target".
  const auto name = [](const std::filesystem::path& folder) {
    const auto absolute = std::filesystem::absolute(folder).lexically_normal();
    const auto parent = absolute.parent_path().filename();
    return (parent / absolute.filename()).string();
  };
  if (models.draft.empty()) return name(models.target) + " without a drafter";
  return name(models.target) + " with the drafter " + name(models.draft);
}

}  // namespace

int Serve(const ServerOptions& options, ColorMode color, Console& console) {
  const Palette palette(WantsColor(color, console.err_is_terminal));
  const auto models = FindModels(options);
  if (!models.ok()) return PrintError(models.status(), console);
  auto runtime = RuntimeDirectory::Create();
  if (!runtime.ok()) return PrintError(runtime.status(), console);
  auto plan = PlanServer(options, *models, **runtime, ExecutableFolder());
  if (!plan.ok()) return PrintError(plan.status(), console);
  if (models->draft.empty() && options.drafter != "none") {
    console.err << kNoDrafterNote;
  }

  boost::asio::io_context io;
  boost::asio::signal_set signals(io, SIGINT, SIGTERM, SIGHUP);
  absl::Status result;
  bool killed = false;
  Supervisor supervisor(io, *std::move(plan),
                        {.ready =
                             [&](const std::string& address) {
                               console.out << "ready: " << address << std::endl;
                               console.err << palette.Dim("tandem: serving " + Describe(*models) +
                                                          "; try: tandem generate --connect " +
                                                          address + " \"Once upon a time\"")
                                           << std::endl;
                             },
                         .stopped =
                             [&](const absl::Status& status) {
                               result = status;
                               boost::system::error_code ignored;
                               signals.cancel(ignored);
                             },
                         .log =
                             [&](const std::string& name, const std::string& line) {
                               console.err << palette.Dim(name + ": ") << line << std::endl;
                             }});
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
  if (!result.ok()) return PrintError(result, console);
  return kExitOk;
}

}  // namespace tandem::cli
