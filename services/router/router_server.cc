#include "services/router/router_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "common/log/trace_context.h"
#include "common/rpc/ring_transport.h"
#include "common/security/call_interceptor.h"
#include "common/security/server_credentials.h"
#include "common/status.h"
#include "services/router/live_page.h"

namespace tandem {
namespace {

constexpr char kServiceName[] = "tandem.v1.Generation";
constexpr char kGenerate[] = "/tandem.v1.Generation/Generate";
constexpr char kTokenize[] = "/tandem.v1.Generation/Tokenize";
constexpr char kDetokenize[] = "/tandem.v1.Generation/Detokenize";
constexpr char kGetServerInfo[] = "/tandem.v1.Generation/GetServerInfo";
constexpr TlsFlags kWorkerTlsFlags = {
    .certificate = "--worker-certificate", .key = "--worker-key", .authorities = "--worker-ca"};
constexpr int kMaxMetadataBytes = 16 << 10;
constexpr size_t kMaxGrpcBytes = size_t{512} << 20;
constexpr size_t kMaxUnreadReplyBytes = size_t{64} << 20;
constexpr int kMaxGrpcThreads = 16;  // a stream of reflection holds one
constexpr auto kShutdownGrace = std::chrono::seconds(1);
// What takes longer is done in the background: every stream waits meanwhile.
constexpr size_t kMaxShortTextBytes = 16 << 10;
constexpr int kMaxShortIds = 16 << 10;
constexpr size_t kMaxTenantBytes = 256;
constexpr int kTextFieldBytes = 8;  // what a message needs beside its text, at most

absl::Status TooMuchWork() { return ResourceExhausted("too many long texts wait to be tokenized"); }

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double UnixTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// "since=12.5"; anything else is 0.
double Since(const std::string& query) {
  constexpr std::string_view kName = "since=";
  double since = 0;
  if (query.starts_with(kName)) {
    std::from_chars(query.data() + kName.size(), query.data() + query.size(), since);
  }
  return std::isfinite(since) ? since : 0;
}

void Write(const LogLine& line) {
  LogFields fields;
  if (!line.pod.empty()) fields.Add("pod", line.pod);
  if (!line.request_id.empty()) fields.Add("request_id", line.request_id);
  fields.Add("slot", line.slot).Add("epoch", line.epoch).Add("session", line.session);
  const auto level = line.level == LogLine::Level::kDebug     ? spdlog::level::debug
                     : line.level == LogLine::Level::kInfo    ? spdlog::level::info
                     : line.level == LogLine::Level::kWarning ? spdlog::level::warn
                                                              : spdlog::level::err;
  LogWith(level, fields, line.text);
}

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

bool IsForWorker(const EngineCommand& command) {
  return std::holds_alternative<OpenSession>(command) ||
         std::holds_alternative<CloseSession>(command) ||
         std::holds_alternative<SendToDrafter>(command) ||
         std::holds_alternative<SendToVerifier>(command) ||
         std::holds_alternative<SendPing>(command);
}

EngineOptions WithRandomness(EngineOptions options, uint64_t first_session_token,
                             uint64_t audit_key) {
  options.workers.first_session_token = first_session_token;
  options.audit_key = audit_key;
  return options;
}

// All that may be called: what is not here is denied.
std::shared_ptr<CallGate> MakeGate(std::shared_ptr<TokenFile> tokens) {
  return std::make_shared<CallGate>(
      std::vector<std::string>{kGenerate, kTokenize, kDetokenize, kGetServerInfo,
                               "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
                               "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"},
      std::move(tokens));
}

// What one connection may do to this process is bounded here, and nowhere by default.
void ConfigureServer(const RouterOptions& options, grpc::ServerBuilder* builder) {
  grpc::ResourceQuota quota("tandem-router");
  quota.Resize(kMaxGrpcBytes);
  quota.SetMaxThreads(kMaxGrpcThreads);
  builder->SetResourceQuota(quota);
  builder->SetMaxReceiveMessageSize(options.max_message_bytes);
  builder->SetMaxSendMessageSize(options.max_message_bytes);
  const std::pair<const char*, int> arguments[] = {
      {GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes},
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_streams},
      // A client that is gone without a word is noticed within 30 s.
      {GRPC_ARG_KEEPALIVE_TIME_MS, 20000},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000},
      {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2},
      {GRPC_ARG_MAX_CONNECTION_IDLE_MS, 3600 * 1000},
      {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10000},
  };
  for (const auto& [name, value] : arguments) builder->AddChannelArgument(name, value);
  if (options.max_connection_age_seconds > 0) {
    // Streams that run on it are finished there, however long they take.
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                                static_cast<int>(options.max_connection_age_seconds * 1000));
  }
  // Health and reflection alone use gRPC's threads.
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
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

absl::StatusOr<std::unique_ptr<RouterServer>> RouterServer::Create(const RouterOptions& options,
                                                                   TargetFolder target) {
  TANDEM_ASSIGN_OR_RETURN(Address listen, Address::Parse(options.listen_address));
  TANDEM_ASSIGN_OR_RETURN(ServerSecurity security, ServerSecurity::Open(options.security));
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
  TANDEM_ASSIGN_OR_RETURN(PodDirectory pods,
                          PodDirectory::Parse(options.verifier_address, options.drafter_address));
  std::unique_ptr<RouterServer> server(new RouterServer(
      options, std::move(target), std::move(listen), std::move(admin), std::move(pods)));
  server->security_ = std::move(security);
  server->worker_tls_ = std::move(worker_tls);
  return server;
}

RouterServer::RouterServer(const RouterOptions& options, TargetFolder target, Address listen,
                           std::optional<Address> admin, PodDirectory pods)
    : options_(options),
      target_(std::move(target)),
      listen_(std::move(listen)),
      admin_address_(std::move(admin)),
      directory_(std::move(pods)),
      random_([] {
        std::random_device device;
        return (uint64_t{device()} << 32) | device();
      }()),
      validator_(options.limits, target_.tokenizer.get(),
                 [this] {
                   const std::lock_guard<std::mutex> lock(random_mutex_);
                   return random_();
                 }),
      metrics_(TANDEM_VERSION, model_name(), options.limits.max_draft_length,
               options.engine.workers.has_drafter),
      live_(TANDEM_VERSION, model_name(), UnixTime()),
      unix_offset_(UnixTime() - Now()),
      fleet_(WithRandomness(options.engine, random_(), random_()), target_.tokenizer.get(),
             &metrics_, random_()),
      log_(options.log_prompts),
      unread_replies_(kMaxUnreadReplyBytes) {}

RouterServer::~RouterServer() {
  if (shutdown_.joinable()) shutdown_.join();
  if (queue_ == nullptr || phase_ == Phase::kClosed) return;
  // Run did not come to its end: gRPC still has to give back what it holds.
  if (listener_ != nullptr) listener_->Stop();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  if (workers_ != nullptr) workers_->CloseAll();
  if (signals_.has_value()) signals_->Stop();
  if (background_.has_value()) background_->Stop();
  if (lookups_.has_value()) lookups_->Abandon();
  queue_->Shutdown();
  PollUntilShutDown();
}

absl::Status RouterServer::Start() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  ConfigureServer(options_, &builder);
  builder.RegisterService(&service_);
  WarnOfOpenDoors();
  gate_ = MakeGate(security_.tokens);
  InterceptCalls(builder,
                 [gate = gate_](std::string_view method, const auto& context) {
                   return CheckCall(*gate, method, context);
                 },
                 /*without=*/{kGenerate, kTokenize, kDetokenize, kGetServerInfo});
  if (auto listener = Listener::Bind(listen_); listener.ok()) {
    listener_ = *std::move(listener);
  } else {
    return absl::Status(listener.status().code(),
                        "--listen: " + std::string(listener.status().message()));
  }
  listener_->AddTo(builder, MakeServerCredentials(listen_.is_unix() ? nullptr : security_.tls));
  queue_ = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return Internal("the gRPC server cannot be started");
  listener_->Start();
  TANDEM_RETURN_IF_ERROR(StartAdmin());
  SetServing(false);
  background_.emplace(queue_.get());
  signals_.emplace(queue_.get(), [this](int number) { OnSignal(number); });
  workers_ = std::make_unique<WorkerStreams>(worker_tls_, queue_.get(), this);
  WaitForGenerate();
  WaitForOthers();
  started_at_ = Now();
  fleet_.Start(started_at_);
  if (directory_.is_fixed()) {
    OnPodsFound(directory_.Find());
  } else {
    lookups_.emplace(queue_.get());
    LookForPods();
  }
  ExecuteCommands();
  return absl::OkStatus();
}

// A person has allowed them; the log says what that means.
void RouterServer::WarnOfOpenDoors() const {
  if (listen_.is_loopback()) return;
  if (security_.tls == nullptr) {
    spdlog::warn("--listen {}: prompts, texts{} are readable on the way (no --tls-certificate)",
                 listen_.ToGrpc(), security_.tokens == nullptr ? "" : " and tokens");
  }
  if (security_.tokens == nullptr && !security_.mutual_tls()) {
    spdlog::warn("--listen {}: whoever reaches it may use it (no --token-file, no --tls-client-ca)",
                 listen_.ToGrpc());
  }
}

absl::Status RouterServer::StartAdmin() {
  if (!admin_address_.has_value()) return absl::OkStatus();
  AdminRoutes routes = MetricsRoutes(metrics_.registry());
  for (const LivePageFile& file : LivePage()) {
    routes[file.path] = [file](const std::string&) {
      return AdminResponse{.body = std::string(file.content), .content_type = file.content_type};
    };
  }
  routes["/live.json"] = [this](const std::string& query) {
    return AdminResponse{.body = live_.Json(Since(query)), .content_type = "application/json"};
  };
  routes["/readyz"] = [this](const std::string&) {
    return ready_ ? AdminResponse{.body = "ready\n"}
                  : AdminResponse{.body = "not ready\n", .status = 503};
  };
  TANDEM_ASSIGN_OR_RETURN(
      admin_, AdminServer::Start(*admin_address_, std::move(routes), AdminLimits(), security_));
  spdlog::info("metrics: {}/metrics", admin_->url());
  spdlog::info("live page: {}/", admin_->url());
  return absl::OkStatus();
}

void RouterServer::RefreshMetrics() {
  const double now = Now();
  if (now < metrics_refreshed_at_ + RouterMetrics::kRefreshSeconds) return;
  metrics_refreshed_at_ = now;
  const FleetState state = fleet_.State();
  metrics_.Refresh(state);
  if (now < live_sampled_at_ + LiveHistory::kSampleSeconds) return;
  live_sampled_at_ = now;
  LiveSample sample = metrics_.Sample(state);
  sample.time = unix_offset_ + now;
  live_.Add(std::move(sample));
}

absl::Status RouterServer::Run(const std::function<void(const std::string&)>& on_ready) {
  while (true) {
    const double deadline = NextDeadline();
    const auto until =
        std::isinf(deadline)
            ? gpr_inf_future(GPR_CLOCK_MONOTONIC)
            : gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                           gpr_time_from_micros(
                               static_cast<int64_t>(std::max(0.0, deadline - Now()) * 1e6) + 1,
                               GPR_TIMESPAN));
    void* tag = nullptr;
    bool ok = false;
    const auto status = queue_->AsyncNext(&tag, &ok, until);
    if (status == grpc::CompletionQueue::SHUTDOWN) return exit_status_;
    if (status == grpc::CompletionQueue::GOT_EVENT) static_cast<AsyncTag*>(tag)->Proceed(ok);
    log_.Tick(Now());
    RefreshMetrics();
    if (phase_ == Phase::kClosed) continue;
    // Once the server closes no session is opened any more: nobody would close it.
    if (phase_ != Phase::kClosing && Now() >= fleet_.NextDeadline()) fleet_.Tick(Now());
    // A drain may outlast the pods that it began with.
    if (phase_ <= Phase::kDraining && Now() >= look_for_pods_at_) LookForPods();
    ExecuteCommands();
    UpdateReadiness(on_ready);
    AdvancePhase();
  }
}

void RouterServer::PollUntilShutDown() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) static_cast<AsyncTag*>(tag)->Proceed(ok);
}

// ---------------------------------------------------------------- clients

void RouterServer::WaitForGenerate() {
  auto call = std::make_unique<GenerateCall>(
      ++last_call_, static_cast<size_t>(options_.stream_buffer_bytes),
      static_cast<size_t>(options_.stream_padding_bytes), this);
  GenerateCall* waiting = call.get();
  calls_.emplace(last_call_, std::move(call));
  waiting->WaitForClient(&service_, queue_.get());
}

void RouterServer::WaitForOthers() {
  const auto check = [this](const char* method) {
    return [this, method](const grpc::ServerContext& context) {
      return CheckCall(*gate_, method, context);
    };
  };
  tokenize_.emplace(
      queue_.get(), &unread_replies_,
      [this](auto* context, auto* request, auto* writer, void* tag) {
        service_.RequestTokenize(context, request, writer, queue_.get(), queue_.get(), tag);
      },
      check(kTokenize),
      [this](const v1::TokenizeRequest& request, const auto& respond) {
        if (const absl::Status status = validator_.ValidateTokenize(request); !status.ok()) {
          return respond(status);
        }
        auto reply = std::make_shared<absl::StatusOr<v1::TokenizeResponse>>();
        const bool is_long = request.text().size() > kMaxShortTextBytes;
        const auto tokenize = [this, reply, &request] {
          const bool add_special =
              !request.has_add_special_tokens() || request.add_special_tokens();
          const auto ids = target_.tokenizer->Encode(request.text(), add_special);
          if (!ids.ok()) {
            *reply = ids.status();
            return;
          }
          reply->emplace().mutable_ids()->Assign(ids->begin(), ids->end());
        };
        if (!RunWork(is_long, tokenize, [reply, respond] { respond(*reply); })) {
          respond(TooMuchWork());
        }
      });
  detokenize_.emplace(
      queue_.get(), &unread_replies_,
      [this](auto* context, auto* request, auto* writer, void* tag) {
        service_.RequestDetokenize(context, request, writer, queue_.get(), queue_.get(), tag);
      },
      check(kDetokenize),
      [this](const v1::DetokenizeRequest& request, const auto& respond) {
        if (const absl::Status status = validator_.ValidateDetokenize(request); !status.ok()) {
          return respond(status);
        }
        auto reply = std::make_shared<absl::StatusOr<v1::DetokenizeResponse>>();
        const bool is_long = request.ids_size() > kMaxShortIds;
        const auto detokenize = [this, reply, &request] {
          auto text =
              DecodeWithin(*target_.tokenizer,
                           std::span<const int32_t>(request.ids().data(), request.ids_size()),
                           !request.has_skip_special_tokens() || request.skip_special_tokens(),
                           static_cast<size_t>(options_.max_message_bytes - kTextFieldBytes));
          if (!text.ok()) {
            *reply = text.status();
            return;
          }
          reply->emplace().set_text(*std::move(text));
        };
        if (!RunWork(is_long, detokenize, [reply, respond] { respond(*reply); })) {
          respond(TooMuchWork());
        }
      });
  server_info_.emplace(
      queue_.get(), &unread_replies_,
      [this](auto* context, auto* request, auto* writer, void* tag) {
        service_.RequestGetServerInfo(context, request, writer, queue_.get(), queue_.get(), tag);
      },
      check(kGetServerInfo),
      [this](const v1::GetServerInfoRequest&, const auto& respond) {
        v1::ServerInfo info;
        FillServerInfo(&info);
        respond(info);
      });
  tokenize_->Serve();
  detokenize_->Serve();
  server_info_->Serve();
}

void RouterServer::OnOpened(GenerateCall& call) {
  ++num_open_calls_;
  WaitForGenerate();
  if (const absl::Status status = CheckCall(*gate_, kGenerate, call.context()); !status.ok()) {
    Finish(call, status, 0, 0);
    return;
  }
  if (fleet_.promised() == nullptr) {
    Finish(call, Unavailable("not ready: no verifier has attached yet"), 0, 1000);
    return;
  }
  if (call.tenant().size() > kMaxTenantBytes) {
    Finish(call,
           InvalidArgument("metadata tandem-tenant: got " + std::to_string(call.tenant().size()) +
                           " bytes, allowed: at most " + std::to_string(kMaxTenantBytes)),
           0, 0);
    return;
  }
  const double arrived_at = Now();
  if (const auto refusal = fleet_.RefusesAll(arrived_at)) {
    log_.TurnedAway(call.request(), call.traceparent(), refusal->status, arrived_at);
    Finish(call, refusal->status, 0, refusal->retry_milliseconds);
    return;
  }
  if (call.request().prompt().size() <= kMaxShortTextBytes) {
    OnValidated(call.id(), arrived_at, validator_.Validate(call.request(), Served()));
    return;
  }
  // A copy: the call may be gone before its prompt is tokenized.
  struct Job {
    v1::GenerateRequest request;
    ServedModel served;
    absl::StatusOr<GenerationRequest> validated;
  };
  auto job = std::make_shared<Job>(Job{call.request(), Served(), absl::UnknownError("")});
  const bool taken = background_->Run(
      [this, job] { job->validated = validator_.Validate(job->request, job->served); },
      [this, job, arrived_at, id = call.id()] {
        OnValidated(id, arrived_at, std::move(job->validated));
      });
  if (!taken) Finish(call, TooMuchWork(), 0, 1000);
}

void RouterServer::OnValidated(CallId id, double arrived_at,
                               absl::StatusOr<GenerationRequest> request) {
  const auto call = calls_.find(id);
  if (call == calls_.end() || call->second->finished()) return;
  if (!request.ok()) {
    log_.Refused(call->second->request(), call->second->traceparent(), request.status());
    Finish(*call->second, request.status(), 0, 0);
    return;
  }
  request->arrived_at = arrived_at;
  request->open.set_cache_salt(call->second->tenant());
  if (std::string traceparent = call->second->traceparent(); ParseTraceparent(traceparent)) {
    request->open.set_traceparent(std::move(traceparent));
  }
  log_.Started(id, call->second->request(), *request, arrived_at);
  call->second->DropRequest();
  fleet_.OnRequest(id, *std::move(request), Now());
}

void RouterServer::FinishCallWith(GenerateCall& call, const absl::Status& status,
                                  int emitted_tokens, int retry_milliseconds,
                                  const std::optional<SlotLife>& slot) {
  log_.Finished(call.id(), status, emitted_tokens, slot, Now());
  Finish(call, status, emitted_tokens, retry_milliseconds);
}

void RouterServer::Finish(GenerateCall& call, const absl::Status& status, int emitted_tokens,
                          int retry_milliseconds) {
  if (!call.finished()) metrics_.OnFinished(status.code());
  call.Finish(status, emitted_tokens, retry_milliseconds);
}

bool RouterServer::RunWork(bool is_long, std::function<void()> work, std::function<void()> done) {
  if (is_long) return background_->Run(std::move(work), std::move(done));
  work();
  done();
  return true;
}

void RouterServer::OnCancelled(GenerateCall& call) {
  const std::optional<SlotLife> slot = fleet_.OnCancel(call.id(), Now());
  metrics_.OnFinished(absl::StatusCode::kCancelled);
  log_.Finished(call.id(), absl::CancelledError("the client left, or its deadline passed"),
                call.num_sent_tokens(), slot, Now());
}

void RouterServer::OnClosed(GenerateCall& call, bool opened) {
  if (opened) --num_open_calls_;
  calls_.erase(call.id());
}

ServedModel RouterServer::Served() const {
  const v1::AttachReply& verifier = *fleet_.promised();
  ServedModel served;
  served.model = model_name();
  served.drafter = fleet_.drafter_name();
  served.vocabulary_size = verifier.vocabulary_size();
  served.max_context_tokens = verifier.max_context_tokens();
  served.context_limited_by_pages = verifier.context_limited_by_pages();
  served.end_of_text_ids = target_.end_of_text_ids;
  return served;
}

void RouterServer::FillServerInfo(v1::ServerInfo* info) const {
  const FleetState state = fleet_.State();
  *info->mutable_load() = state.load;
  info->set_version(TANDEM_VERSION);
  info->set_model(model_name());
  info->set_max_draft_length(static_cast<int>(options_.limits.max_draft_length));
  if (const v1::AttachReply* verifier = fleet_.promised()) {
    info->set_max_context_tokens(static_cast<int>(verifier->max_context_tokens()));
    info->set_vocabulary_size(static_cast<int>(verifier->vocabulary_size()));
    info->set_max_slots(static_cast<int>(state.num_slots));
    info->set_backend(verifier->backend());
  }
  if (!state.drafter_name.empty()) info->add_drafters(state.drafter_name);
  if (state.drafter_attached) {
    info->set_draft_model(state.drafter_name);
    info->set_drafter_attached(true);
    if (!state.transports.empty()) {
      info->set_ring_transport(RingTransportName(state.transports.front()));
    }
  }
}

// ---------------------------------------------------------------- workers

void RouterServer::LookForPods() {
  look_for_pods_at_ = std::numeric_limits<double>::infinity();  // one at a time
  auto found = std::make_shared<absl::StatusOr<std::vector<PodSpec>>>();
  // A copy: the lookup may outlive this.
  lookups_->Run([directory = directory_, found] { *found = directory.Find(); },
                [this, found] { OnPodsFound(*found); });
}

void RouterServer::OnPodsFound(const absl::StatusOr<std::vector<PodSpec>>& found) {
  if (phase_ > Phase::kDraining) return;
  if (!directory_.is_fixed()) {
    // Who waits for the first pods asks more often.
    look_for_pods_at_ = Now() + (fleet_.num_pods() > 0 ? options_.discover_seconds
                                                       : std::min(options_.discover_seconds, 1.0));
  }
  if (found.ok()) {
    lookup_complaint_.clear();
    fleet_.SetPods(*found, Now());
    return;
  }
  // Pods that were found stay: one that is really gone is noticed by its connection.
  const std::string complaint(found.status().message());
  if (complaint != lookup_complaint_) spdlog::warn("worker pods: {}", complaint);
  lookup_complaint_ = complaint;
}

void RouterServer::OnDraftReply(SessionId session, v1::DraftReply& reply) {
  fleet_.OnDraftReply(session, reply, Now());
  ExecuteCommands();
}

void RouterServer::OnVerifierReply(SessionId session, v1::VerifierReply& reply) {
  fleet_.OnVerifierReply(session, reply, Now());
  ExecuteCommands();
}

void RouterServer::OnSessionLost(Worker worker, SessionId session, const std::string& why) {
  fleet_.OnSessionLost(worker, session, why, Now());
}

void RouterServer::OnPong(Worker worker, SessionId session, const v1::WatchPong& pong) {
  fleet_.OnPong(worker, session, pong, Now());
}

void RouterServer::ExecuteCommands() {
  // A command can make more: a client that is too slow is cancelled.
  for (EngineCommands commands = fleet_.TakeCommands(); !commands.empty();
       commands = fleet_.TakeCommands()) {
    // Workers first: they compute while clients are written to.
    const auto others = std::stable_partition(commands.begin(), commands.end(), IsForWorker);
    std::for_each(commands.begin(), others, [this](EngineCommand& command) { Execute(command); });
    fleet_.OnCommandsSent(Now());
    std::for_each(others, commands.end(), [this](EngineCommand& command) { Execute(command); });
  }
}

void RouterServer::Execute(EngineCommand& command) {
  std::visit(
      Overloaded{
          [&](const OpenSession& open) {
            const PodSpec* pod = fleet_.PodOf(open.session);
            if (pod == nullptr) return;  // it left meanwhile
            // The directory gives only what can be parsed.
            const std::string& text =
                open.worker == Worker::kVerifier ? pod->verifier : pod->drafter;
            workers_->Open(open.worker, open.session, *Address::Parse(text));
          },
          [&](const CloseSession& close) { workers_->Close(close.session); },
          [&](SendToDrafter& send) { workers_->Send(send.session, std::move(send.command)); },
          [&](SendToVerifier& send) { workers_->Send(send.session, std::move(send.command)); },
          [&](const SendPing& ping) { workers_->Ping(ping.worker, ping.session, ping.token); },
          [&](WriteResponse& write) {
            if (write.response.has_completion()) {
              log_.Completed(write.call, write.response.completion());
            }
            const auto call = calls_.find(write.call);
            if (call == calls_.end() || call->second->Write(std::move(write.response))) return;
            const std::optional<SlotLife> slot = fleet_.OnCancel(write.call, Now());
            FinishCallWith(*call->second,
                           ResourceExhausted("client too slow: more than " +
                                             std::to_string(options_.stream_buffer_bytes) +
                                             " bytes of the stream wait to be read"),
                           call->second->num_sent_tokens(), 0, slot);
          },
          [&](const FinishCall& finish) {
            const auto call = calls_.find(finish.call);
            if (call == calls_.end()) return;
            FinishCallWith(*call->second, finish.status, finish.emitted_tokens,
                           finish.retry_milliseconds, finish.slot);
          },
          [&](const LogLine& line) {
            Write(line);
            if (line.level != LogLine::Level::kDebug) {
              const std::string& text = line.summary.empty() ? line.text : line.summary;
              // Without the pod: whoever sees the page is to learn no worker's address.
              live_.AddEvent(unix_offset_ + Now(), line.level, text);
            }
          },
          [&](const GiveUp& give_up) {
            exit_status_ = give_up.status;
            phase_ = std::max(phase_, Phase::kDraining);
            drain_until_ = Now();
          },
      },
      command);
}

// ---------------------------------------------------------------- life

void RouterServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  health->SetServingStatus("", serving);
  health->SetServingStatus(kServiceName, serving);
  serving_ = serving;
  ready_ = serving;
}

void RouterServer::UpdateReadiness(const std::function<void(const std::string&)>& on_ready) {
  const bool distrusted = options_.audit_fails_readiness && fleet_.audit().failed();
  const bool serving = phase_ == Phase::kServing && fleet_.ready() && !distrusted;
  if (serving != serving_) SetServing(serving);
  if (!serving || announced_) return;
  if (!fleet_.drafters_settled() && Now() < started_at_ + options_.drafter_wait_seconds) return;
  announced_ = true;
  on_ready(listen_.ToString(listener_->port()));
}

void RouterServer::OnSignal(int number) {
  // A terminal's Ctrl-C comes twice, from the terminal and as SIGTERM from the supervisor: that is one wish.
  const bool again = !signals_seen_.insert(number).second;
  if (phase_ == Phase::kServing) {
    spdlog::info("draining: running requests have {} s to finish", options_.drain_seconds);
    phase_ = Phase::kDraining;
    drain_until_ = Now() + options_.drain_seconds;
    fleet_.Drain();
  } else if (again) {
    drain_until_ = Now();
  }
}

void RouterServer::AdvancePhase() {
  if (phase_ == Phase::kDraining &&
      ((fleet_.idle() && num_open_calls_ == 0) || Now() >= drain_until_)) {
    phase_ = Phase::kClosing;
    fleet_.Stop(Now());
    ExecuteCommands();
    listener_->Stop();
    // Waits for the calls that this thread still has to finish, so it needs one of its own.
    shutdown_ = std::thread([this] {
      server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
      shut_down_alarm_.Set(queue_.get(), gpr_now(GPR_CLOCK_MONOTONIC), shut_down_tag_.get());
    });
  }
  if (phase_ == Phase::kClosing && shut_down_ && workers_->quiet() && background_->quiet() &&
      (!lookups_.has_value() || lookups_->quiet())) {
    phase_ = Phase::kClosed;
    queue_->Shutdown();
  }
}

void RouterServer::OnShutDown(bool /*ok*/) {
  shut_down_ = true;
  signals_->Stop();
  if (lookups_.has_value()) lookups_->Abandon();  // a name server may take long to answer, or never
  workers_->CloseAll();
}

double RouterServer::NextDeadline() const {
  double deadline = std::numeric_limits<double>::infinity();
  if (phase_ <= Phase::kDraining) deadline = std::min(fleet_.NextDeadline(), look_for_pods_at_);
  if (phase_ == Phase::kDraining) deadline = std::min(deadline, drain_until_);
  if (!announced_ && serving_) {
    deadline = std::min(deadline, started_at_ + options_.drafter_wait_seconds);
  }
  return deadline;
}

}  // namespace tandem
