// The server that a command talks to: a running server, or a private one that lives as long as the
// command.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_SESSION_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_SESSION_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <deque>
#include <functional>
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
  std::string connect;  // address of a running server; empty: start a private server
  ClientSecurityOptions security;
  ServerOptions server;  // options of the private server
};

// A private server listens on a Unix socket in its own folder. It shows its log lines only on
// request or after a failure. The server and its folder disappear with the session.
//
// The first Ctrl-C (or SIGTERM, SIGHUP) cancels the running call, and every later call returns
// CANCELLED. The second one kills a private server and ends this process. A command that does
// something else first sets a handler.
class ServerSession {
 public:
  // CANCELLED: interrupted during the start.
  static absl::StatusOr<std::unique_ptr<ServerSession>> Open(const SessionOptions& options,
                                                             Console& console);
  ~ServerSession();
  ServerSession(const ServerSession&) = delete;
  ServerSession& operator=(const ServerSession&) = delete;

  // `handler` gets every later signal first, on another thread. If it returns true, the signal has
  // no other effect. Null takes the handler away.
  using SignalHandler = std::function<bool(int signal)>;
  void SetSignalHandler(SignalHandler handler);

  GenerationClient& client() { return *client_; }
  // Returns the models of the private server. The paths are empty with --connect.
  const ModelFolders& models() const { return models_; }
  // Returns the time from starting the first process to the first answer, or 0 with --connect.
  double start_seconds() const { return start_seconds_; }

 private:
  ServerSession(Console& console, bool verbose);

  absl::Status StartServer(const SessionOptions& session_options);
  absl::Status AwaitDrafter();
  // The functions below run on the io thread.
  void AwaitSignal();
  void OnSignal(int signal);
  void OnStopped(const absl::Status& status);
  void Answer(absl::Status status);
  void Log(const std::string& name, const std::string& line);

  Console& console_;
  bool verbose_;
  ModelFolders models_;
  double start_seconds_ = 0;
  std::unique_ptr<RuntimeDirectory> runtime_;
  std::unique_ptr<GenerationClient> client_;
  std::promise<absl::Status> started_;  // set to OK when the private server serves, or to its error

  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  std::unique_ptr<Supervisor> supervisor_;  // null with --connect
  SignalHandler signal_handler_;            // used on the io thread
  bool answered_ = false;                   // started_ is set
  bool interrupted_ = false;
  bool exit_when_stopped_ = false;
  std::deque<std::string> last_lines_;
  std::thread thread_;  // runs io_; declared last, so that all other members exist when it starts
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_SESSION_H_
