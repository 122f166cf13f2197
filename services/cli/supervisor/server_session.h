// The server that a command talks to: a running one, or a private one for the time of the command.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_SESSION_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_SESSION_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "services/cli/client/generation_client.h"
#include "services/cli/supervisor/server_options.h"
#include "services/cli/supervisor/server_plan.h"
#include "services/cli/supervisor/supervisor.h"
#include "services/cli/terminal/console.h"

namespace tandem::cli {

struct SessionOptions {
  std::string connect;  // address of a running server; empty: start a private one
  ClientSecurityOptions security;
  ServerOptions server;  // of the private one
};

// A private server listens on a Unix socket in its own folder, writes its log lines only when asked
// to or when it fails, and is gone, with its folder, when the session is.
//
// The first Ctrl-C (SIGTERM, SIGHUP) cancels the running call and makes every later one CANCELLED;
// the second kills a private server and ends this process.
class ServerSession {
 public:
  // CANCELLED when interrupted while starting.
  static absl::StatusOr<std::unique_ptr<ServerSession>> Open(const SessionOptions& options,
                                                             Console& console);
  ~ServerSession();
  ServerSession(const ServerSession&) = delete;
  ServerSession& operator=(const ServerSession&) = delete;

  GenerationClient& client() { return *client_; }
  // Of the private server; empty paths with --connect.
  const ModelFolders& models() const { return models_; }
  // From the first process to the first answer; 0 with --connect.
  double start_seconds() const { return start_seconds_; }

 private:
  ServerSession(Console& console, bool verbose);

  absl::Status StartServer(const SessionOptions& session_options);
  absl::Status AwaitDrafter();
  // Below: on the io thread.
  void OnSignal();
  void OnStopped(const absl::Status& status);
  void Answer(absl::Status status);
  void Log(const std::string& name, const std::string& line);

  Console& console_;
  bool verbose_;
  ModelFolders models_;
  double start_seconds_ = 0;
  std::unique_ptr<RuntimeDirectory> runtime_;
  std::unique_ptr<GenerationClient> client_;
  std::promise<absl::Status> started_;  // whether the private server serves

  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  std::unique_ptr<Supervisor> supervisor_;  // null with --connect
  bool answered_ = false;                   // started_ is set
  bool interrupted_ = false;
  bool exit_when_stopped_ = false;
  std::deque<std::string> last_lines_;
  std::thread thread_;  // runs io_; last, so that all the rest is there when it starts
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_SESSION_H_
