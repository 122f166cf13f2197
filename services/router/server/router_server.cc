#include "services/router/server/router_server.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <mutex>
#include <random>
#include <utility>
#include <variant>

#include "common/log/log.h"
#include "common/log/log_fields.h"
#include "common/monotonic_seconds.h"
#include "common/retrieval/corpus.h"
#include "common/rpc/address.h"
#include "common/rpc/async_tag.h"
#include "common/rpc/worker_channel.h"
#include "common/security/server_security.h"
#include "common/status.h"
#include "services/router/fleet/fleet_drafters.h"

namespace tandem {
namespace {

constexpr TlsFlags kWorkerTlsFlags = {
    .certificate = "--worker-certificate", .key = "--worker-key", .authorities = "--worker-ca"};

void WriteToLog(const LogLine& line) {
  const auto level = line.level == LogLine::Level::kDebug     ? spdlog::level::debug
                     : line.level == LogLine::Level::kInfo    ? spdlog::level::info
                     : line.level == LogLine::Level::kWarning ? spdlog::level::warn
                                                              : spdlog::level::err;
  if (!spdlog::should_log(level)) return;
  LogFields fields;
  if (!line.pod.empty()) fields.Add("pod", line.pod);
  if (!line.request_id.empty()) fields.Add("request_id", line.request_id);
  fields.Add("slot", line.slot).Add("epoch", line.epoch).Add("session", line.session);
  LogWith(level, fields, line.text);
}

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

// Also true for a search, which computes while the router writes to clients.
bool IsForWorker(const EngineCommand& command) {
  return std::holds_alternative<OpenSession>(command) ||
         std::holds_alternative<CloseSession>(command) ||
         std::holds_alternative<SendToDrafter>(command) ||
         std::holds_alternative<SendToVerifier>(command) ||
         std::holds_alternative<SearchCorpus>(command) || std::holds_alternative<SendPing>(command);
}

// Returns a thread-safe source of random numbers, because two threads validate requests.
std::function<uint64_t()> MakeRandom() {
  struct Source {
    std::mutex mutex;
    std::mt19937_64 engine;
  };
  std::random_device device;
  auto source = std::make_shared<Source>();
  source->engine.seed((uint64_t{device()} << 32) | device());
  return [source] {
    const std::lock_guard<std::mutex> lock(source->mutex);
    return source->engine();
  };
}

EngineOptions WithRandomness(EngineOptions options, uint64_t first_session_token,
                             uint64_t audit_key) {
  options.workers.first_session_token = first_session_token;
  options.audit_key = audit_key;
  return options;
}

// Fails if the operator's chat template does not compile. If the model's own does not, chats are
// refused.
absl::StatusOr<PromptEncoder> MakeEncoder(const RouterOptions& options,
                                          const Tokenizer& tokenizer) {
  std::optional<std::filesystem::path> file;
  if (!options.chat_template.empty()) file = options.chat_template;
  absl::StatusOr<ChatTemplate> chats = ChatTemplate::Load(options.target_folder, file);
  const std::string message(chats.status().message());
  if (file.has_value() && !chats.ok()) return InvalidArgument("--chat-template: " + message);
  if (absl::IsInvalidArgument(chats.status())) spdlog::warn("chats are refused: {}", message);
  return PromptEncoder(&tokenizer, std::move(chats), options.limits.max_prompt_bytes);
}

absl::StatusOr<WorkerTls> OpenWorkerTls(const RouterOptions& options) {
  const TlsPaths& paths = options.worker_tls;
  WorkerTls tls{.name = options.worker_name};
  if (!paths.authorities.empty()) {
    TANDEM_ASSIGN_OR_RETURN(tls.files, TlsFiles::Open(paths, kWorkerTlsFlags));
  } else if (!paths.certificate.empty() || !paths.key.empty() || !tls.name.empty()) {
    return InvalidArgument(
        "--worker-certificate, --worker-key and --worker-name are about TLS to the workers: give "
        "--worker-ca too");
  }
  return tls;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RouterServer>> RouterServer::Start(const RouterOptions& options,
                                                                  TargetFolder target) {
  TANDEM_ASSIGN_OR_RETURN(const Address listen, Address::Parse(options.listen_address));
  TANDEM_ASSIGN_OR_RETURN(const ServerSecurity security, ServerSecurity::Open(options.security));
  const bool has_tokens = security.tokens != nullptr;
  TANDEM_RETURN_IF_ERROR(
      CheckBindIsLocal(listen, options.insecure || security.tls != nullptr || has_tokens));
  TANDEM_ASSIGN_OR_RETURN(WorkerTls worker_tls, OpenWorkerTls(options));
  std::optional<Address> admin;
  if (options.admin_address != "none") {
    TANDEM_ASSIGN_OR_RETURN(admin, Address::Parse(options.admin_address));
    TANDEM_RETURN_IF_ERROR(
        CheckBindIsLocal(*admin, options.insecure || has_tokens, "--admin", "--token-file"));
  }
  TANDEM_ASSIGN_OR_RETURN(PodDirectory directory,
                          PodDirectory::Parse(options.verifier_address, options.drafter_address));
  std::shared_ptr<const RetrievalIndex> corpus;
  if (!options.retrieval.empty()) {
    TANDEM_ASSIGN_OR_RETURN(corpus, OpenCorpus(options.retrieval, *target.tokenizer));
    spdlog::info("the retrieval index {} has {} tokens", options.retrieval, corpus->num_tokens());
  }
  TANDEM_ASSIGN_OR_RETURN(PromptEncoder encoder, MakeEncoder(options, *target.tokenizer));
  std::unique_ptr<RouterServer> server(
      new RouterServer(options, std::move(target), std::move(encoder), MakeRandom()));
  TANDEM_ASSIGN_OR_RETURN(server->clients_, ClientServer::Start(options, listen, security));
  if (admin.has_value()) TANDEM_RETURN_IF_ERROR(server->pages_.Start(*admin, security));
  if (corpus != nullptr) server->ServeCorpus(std::move(corpus));
  server->workers_.emplace(std::move(worker_tls), server->clients_->queue(), server.get());
  server->pods_.emplace(std::move(directory), options.discover_seconds, &server->fleet_,
                        server->clients_->queue());
  server->Serve();
  return server;
}

RouterServer::RouterServer(const RouterOptions& options, TargetFolder target, PromptEncoder encoder,
                           const std::function<uint64_t()>& random)
    : options_(options),
      target_(std::move(target)),
      validator_(options.limits, std::move(encoder), random),
      pages_(TANDEM_VERSION, model_name(), options.limits.max_draft_length,
             options.engine.workers.num_drafters > 0),
      fleet_(WithRandomness(options.engine, random(), random()), target_.tokenizer.get(),
             &pages_.metrics(), random()) {}

RouterServer::~RouterServer() {
  if (clients_ == nullptr || phase_ == Phase::kClosed) return;
  // Run did not reach its end, so gRPC still holds tags and calls.
  clients_->ShutdownNow();
  if (workers_.has_value()) workers_->CloseAll();
  if (signals_.has_value()) signals_->Stop();
  if (background_.has_value()) background_->Stop();
  if (corpus_.has_value()) corpus_->Abandon();
  if (pods_.has_value()) pods_->Abandon();
  clients_->Drain();
}

void RouterServer::Serve() {
  grpc::ServerCompletionQueue* const queue = clients_->queue();
  background_.emplace(queue);
  signals_.emplace(queue, [this](int number) { OnSignal(number); });
  const CallContext context{.service = clients_->service(),
                            .draft_models = clients_->draft_models(),
                            .queue = queue,
                            .gate = clients_->gate(),
                            .validator = &validator_,
                            .background = &*background_,
                            .fleet = &fleet_,
                            .model = model_name(),
                            .tool_call_format = options_.tool_call_format,
                            .admin_address = pages_.address()};
  const auto buffer_bytes = static_cast<size_t>(options_.stream_buffer_bytes);
  const auto padding_bytes = static_cast<size_t>(options_.stream_padding_bytes);
  calls_.emplace(
      context,
      ClientCalls::Options{
          .generate = {.buffer_bytes = buffer_bytes,
                       .padding_bytes = padding_bytes,
                       .end_of_text_ids = target_.end_of_text_ids,
                       .log_prompts = options_.log_prompts},
          .many = {.limits = {.calls = static_cast<size_t>(options_.max_stream_calls),
                              .message_bytes = static_cast<size_t>(options_.max_message_bytes)},
                   .buffer_bytes = buffer_bytes,
                   .padding_bytes = padding_bytes},
          .version = TANDEM_VERSION,
          .max_message_bytes = static_cast<size_t>(options_.max_message_bytes)},
      target_.tokenizer.get(), &pages_.metrics());
  calls_->Serve();
  const double now = MonotonicSeconds();
  announce_by_ = now + options_.drafter_wait_seconds;
  fleet_.Start(now);
  pods_->Start();
  ExecuteCommands();
}

void RouterServer::ServeCorpus(std::shared_ptr<const RetrievalIndex> index) {
  const auto vocabulary_size = static_cast<uint32_t>(target_.tokenizer->num_entries());
  corpus_.emplace(std::move(index), vocabulary_size, clients_->queue(),
                  [this](const SearchCorpus& search, std::vector<CorpusAnswer> answers) {
                    fleet_.OnSearched(search, std::move(answers), MonotonicSeconds());
                    ExecuteCommands();
                  });
}

absl::Status RouterServer::Run(const std::function<void(const std::string&)>& on_ready) {
  while (true) {
    const double deadline = NextDeadline();
    const double wait = std::max(0.0, deadline - MonotonicSeconds());
    const auto until = std::isinf(deadline)
                           ? gpr_inf_future(GPR_CLOCK_MONOTONIC)
                           : gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                          gpr_time_from_micros(static_cast<int64_t>(wait * 1e6) + 1,
                                                               GPR_TIMESPAN));
    void* tag = nullptr;
    bool ok = false;
    const auto status = clients_->queue()->AsyncNext(&tag, &ok, until);
    if (status == grpc::CompletionQueue::SHUTDOWN) return exit_status_;
    if (status == grpc::CompletionQueue::GOT_EVENT) static_cast<AsyncTag*>(tag)->Proceed(ok);
    const double now = MonotonicSeconds();
    calls_->generate().Tick(now);
    pages_.Refresh(fleet_, now);
    if (phase_ == Phase::kClosed) continue;
    // A server that closes opens no session, because nobody would close the session.
    if (phase_ != Phase::kClosing && now >= fleet_.NextDeadline()) fleet_.Tick(now);
    // Lookups go on while the server drains, because its pods may be replaced during a long drain.
    pods_->Tick(now);
    ExecuteCommands();
    calls_->Flush();
    UpdateReadiness(on_ready);
    AdvancePhase();
  }
}

// ---------------------------------------------------------------- workers

void RouterServer::OnDraftReply(SessionId session, v1::DraftReply& reply) {
  fleet_.OnDraftReply(session, reply, MonotonicSeconds());
  ExecuteCommands();
}

void RouterServer::OnVerifierReply(SessionId session, v1::VerifierReply& reply) {
  fleet_.OnVerifierReply(session, reply, MonotonicSeconds());
  ExecuteCommands();
}

void RouterServer::OnSessionLost(Worker worker, SessionId session, const std::string& why) {
  fleet_.OnSessionLost(worker, session, why, MonotonicSeconds());
}

void RouterServer::OnPong(Worker worker, SessionId session, const v1::WatchPong& pong) {
  fleet_.OnPong(worker, session, pong, MonotonicSeconds());
}

// ---------------------------------------------------------------- commands

void RouterServer::ExecuteCommands() {
  // A command can cause more commands: a write to a client that is too slow cancels its request.
  for (EngineCommands commands = fleet_.TakeCommands(); !commands.empty();
       commands = fleet_.TakeCommands()) {
    // Workers come first, so that they compute while the router writes to clients.
    for (EngineCommand& command : commands) {
      if (IsForWorker(command)) Execute(command);
    }
    fleet_.OnCommandsSent(MonotonicSeconds());
    for (EngineCommand& command : commands) {
      if (!IsForWorker(command)) Execute(command);
    }
  }
}

void RouterServer::Execute(EngineCommand& command) {
  std::visit(
      Overloaded{
          [this](const OpenSession& open) { OpenStream(open); },
          [this](const CloseSession& close) { workers_->Close(close.session); },
          [this](SendToDrafter& send) { workers_->Send(send.session, std::move(send.command)); },
          [this](SendToVerifier& send) { workers_->Send(send.session, std::move(send.command)); },
          [this](const SendPing& ping) { workers_->Ping(ping.worker, ping.session, ping.token); },
          [this](const SearchCorpus& search) { Search(search); },
          [this](WriteResponse& write) { calls_->generate().Write(std::move(write)); },
          [this](const FinishCall& finish) { calls_->generate().Finish(finish); },
          [this](const LogLine& line) {
            WriteToLog(line);
            if (line.level != LogLine::Level::kDebug) pages_.AddEvent(line, MonotonicSeconds());
          },
          [this](const GiveUp& give_up) { GiveUpWith(give_up.status); },
      },
      command);
}

void RouterServer::Search(const SearchCorpus& search) {
  // Otherwise too many searches wait already.
  if (!corpus_->Run(search)) fleet_.OnSearched(search, {}, MonotonicSeconds());
}

void RouterServer::OpenStream(const OpenSession& open) {
  const PodSpec* pod = fleet_.PodOf(open.session);
  if (pod == nullptr) return;  // the pod left the list meanwhile
  const std::string& text =
      open.peer == kVerifierPeer ? pod->verifier : pod->drafters[open.draft_worker];
  // The directory checked that the address can be parsed.
  workers_->Open(KindOf(open.peer), open.session, *Address::Parse(text));
}

// ---------------------------------------------------------------- life

void RouterServer::UpdateReadiness(const std::function<void(const std::string&)>& on_ready) {
  const bool distrusted = options_.audit_fails_readiness && fleet_.audit().failed();
  const bool serving = phase_ == Phase::kServing && fleet_.ready() && !distrusted;
  if (serving != clients_->serving()) {
    clients_->SetServing(serving);
    pages_.SetReady(serving);
  }
  if (!serving || !announce_by_.has_value()) return;
  if (!DraftersSettled(fleet_) && MonotonicSeconds() < *announce_by_) return;
  announce_by_.reset();
  if (std::string misfit = DrafterMisfit(fleet_);
      options_.drafter_required_at_start && !misfit.empty()) {
    return GiveUpWith(
        FailedPrecondition("the drafter does not fit the target: " + misfit +
                           " (choose another --draft, or decode plainly with --draft-optional)"));
  }
  pages_.RefreshNow(fleet_, MonotonicSeconds());
  on_ready(clients_->address());
}

void RouterServer::GiveUpWith(const absl::Status& status) {
  exit_status_ = status;
  phase_ = std::max(phase_, Phase::kDraining);
  drain_until_ = MonotonicSeconds();
}

void RouterServer::OnSignal(int number) {
  // After Ctrl-C in a terminal, SIGINT comes from the terminal and SIGTERM from the supervisor.
  // Only the repetition of one of them means that the user does not want to wait.
  const bool again = !signals_seen_.insert(number).second;
  if (phase_ == Phase::kServing) {
    spdlog::info("draining: running requests have {} s to finish", options_.drain_seconds);
    phase_ = Phase::kDraining;
    drain_until_ = MonotonicSeconds() + options_.drain_seconds;
    fleet_.Drain();
  } else if (again) {
    drain_until_ = MonotonicSeconds();
  }
}

void RouterServer::AdvancePhase() {
  const double now = MonotonicSeconds();
  if (phase_ == Phase::kDraining &&
      ((fleet_.idle() && calls_->generate().num_open() == 0) || now >= drain_until_)) {
    phase_ = Phase::kClosing;
    pods_->Stop();
    fleet_.Stop(now);
    ExecuteCommands();
    calls_->EndStreams(Unavailable("the server ends"));
    clients_->Shutdown([this] { OnShutDown(); });
  }
  if (phase_ == Phase::kClosing && clients_->is_shut_down() && workers_->quiet() &&
      background_->quiet() && pods_->quiet() && (!corpus_.has_value() || corpus_->quiet())) {
    phase_ = Phase::kClosed;
    clients_->CloseQueue();
  }
}

void RouterServer::OnShutDown() {
  signals_->Stop();
  pods_->Abandon();
  if (corpus_.has_value()) corpus_->Abandon();
  workers_->CloseAll();
}

double RouterServer::NextDeadline() const {
  double deadline = std::numeric_limits<double>::infinity();
  if (phase_ <= Phase::kDraining) deadline = std::min(fleet_.NextDeadline(), pods_->NextDeadline());
  if (phase_ == Phase::kDraining) deadline = std::min(deadline, drain_until_);
  if (announce_by_.has_value() && clients_->serving()) {
    deadline = std::min(deadline, *announce_by_);
  }
  return deadline;
}

}  // namespace tandem
