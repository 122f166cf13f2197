#include "services/cli/supervisor/server_session.h"

#include <signal.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "common/status.h"

namespace tandem::cli {

namespace {

constexpr size_t kMaxKeptLines = 40;
constexpr std::chrono::seconds kConnectTimeout{5};
constexpr std::chrono::seconds kDrafterTimeout{2};
constexpr std::chrono::milliseconds kDrafterPoll{5};

}  // namespace

ServerSession::ServerSession(Console& console, bool verbose)
    : console_(console), verbose_(verbose), signals_(io_, SIGINT, SIGTERM, SIGHUP) {}

absl::StatusOr<std::unique_ptr<ServerSession>> ServerSession::Open(const SessionOptions& options,
                                                                   Console& console) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_ptr<ServerSession> session(new ServerSession(console, options.server.verbose));
  if (options.connect.empty()) {
    TANDEM_RETURN_IF_ERROR(session->StartServer(options));
  } else {
    TANDEM_ASSIGN_OR_RETURN(const ClientSecurity security,
                            ClientSecurity::Open(options.security, options.connect));
    session->client_ = std::make_unique<GenerationClient>(options.connect, security);
  }
  session->AwaitSignal();
  session->thread_ = std::thread([session = session.get()] { session->io_.run(); });
  if (session->supervisor_ != nullptr) {
    const absl::Status started = session->started_.get_future().get();
    if (!started.ok()) {
      session->thread_.join();
      if (absl::IsUnavailable(started) && !session->verbose_) {
        for (const std::string& line : session->last_lines_) console.err << line << "\n";
      }
      return started;
    }
  }
  TANDEM_RETURN_IF_ERROR(session->client_->Connect(kConnectTimeout));
  if (!session->models_.drafts.empty()) TANDEM_RETURN_IF_ERROR(session->AwaitDrafter());
  if (session->supervisor_ != nullptr) {
    session->start_seconds_ =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return session;
}

absl::Status ServerSession::StartServer(const SessionOptions& session_options) {
  ServerOptions options = session_options.server;
  TANDEM_ASSIGN_OR_RETURN(models_, FindModels(options));
  if (models_.drafts.empty() && options.drafter != "none" && LookupsOf(options).empty()) {
    console_.err << "tandem: " << kNoDrafterNote << "\n";
  }
  TANDEM_ASSIGN_OR_RETURN(runtime_, RuntimeDirectory::Create());
  options.listen = runtime_->SocketAddress("router.sock");
  options.drain_seconds = 0;  // the only client is this process
  TANDEM_ASSIGN_OR_RETURN(SupervisorOptions plan,
                          PlanServer(options, models_, *runtime_, ExecutableFolder()));
  // The private router uses a token file that the environment names.
  TANDEM_ASSIGN_OR_RETURN(const ClientSecurity security,
                          ClientSecurity::Open(session_options.security, options.listen));
  client_ = std::make_unique<GenerationClient>(options.listen, security);
  supervisor_ = std::make_unique<Supervisor>(
      io_, std::move(plan),
      SupervisorEvents{
          .ready = [this](const std::string&) { Answer(absl::OkStatus()); },
          .stopped = [this](const absl::Status& status) { OnStopped(status); },
          .log = [this](const std::string& name, const std::string& line) { Log(name, line); }});
  boost::asio::post(io_, [this] { supervisor_->Start(); });
  return absl::OkStatus();
}

// The router serves before the drafter is attached. Without this wait, a single call would start
// with plain decoding.
absl::Status ServerSession::AwaitDrafter() {
  const auto deadline = std::chrono::steady_clock::now() + kDrafterTimeout;
  while (std::chrono::steady_clock::now() < deadline) {
    TANDEM_ASSIGN_OR_RETURN(const v1::ServerInfo info, client_->GetServerInfo());
    if (info.drafter_attached()) return absl::OkStatus();
    std::this_thread::sleep_for(kDrafterPoll);
  }
  console_.err << "tandem: the drafter is not attached yet: decoding plainly until it is\n";
  return absl::OkStatus();
}

ServerSession::~ServerSession() {
  if (!thread_.joinable()) return;
  boost::asio::post(io_, [this] {
    client_.reset();  // the router would wait for an open connection to end
    if (supervisor_ != nullptr) {
      supervisor_->Stop();
    } else {
      OnStopped(absl::OkStatus());
    }
  });
  thread_.join();
}

void ServerSession::SetSignalHandler(SignalHandler handler) {
  // Afterwards the handler of before is not running, so what it uses may go.
  const auto is_set = std::make_shared<std::promise<void>>();
  boost::asio::post(io_, [this, is_set, handler = std::move(handler)]() mutable {
    signal_handler_ = std::move(handler);
    is_set->set_value();
  });
  const std::future<void> set = is_set->get_future();
  while (set.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
    if (io_.stopped()) return;  // no handler runs any more
  }
}

void ServerSession::AwaitSignal() {
  signals_.async_wait([this](const auto& error, int signal) {
    if (!error) OnSignal(signal);
  });
}

void ServerSession::OnSignal(int signal) {
  if (signal_handler_ && signal_handler_(signal)) return AwaitSignal();
  if (interrupted_) {
    exit_when_stopped_ = true;
    if (supervisor_ == nullptr) _exit(kExitInterrupted);
    supervisor_->Kill();
    return;
  }
  interrupted_ = true;
  if (client_ != nullptr) client_->Cancel();
  if (supervisor_ != nullptr && !answered_) supervisor_->Stop();
  AwaitSignal();
}

void ServerSession::OnStopped(const absl::Status& status) {
  if (exit_when_stopped_) {
    runtime_.reset();
    _exit(kExitInterrupted);
  }
  Answer(status.ok() ? absl::CancelledError("interrupted") : status);
  boost::system::error_code ignored;
  signals_.cancel(ignored);
}

void ServerSession::Answer(absl::Status status) {
  if (!std::exchange(answered_, true)) started_.set_value(std::move(status));
}

void ServerSession::Log(const std::string& name, const std::string& line) {
  const std::string text = name + ": " + line;
  if (verbose_) console_.err << text << std::endl;
  last_lines_.push_back(text);
  if (last_lines_.size() > kMaxKeptLines) last_lines_.pop_front();
}

}  // namespace tandem::cli
