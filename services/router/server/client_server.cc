#include "services/router/server/client_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "common/security/call_interceptor.h"
#include "common/security/server_credentials.h"
#include "common/status.h"
#include "grpc/health/v1/health.pb.h"
#include "services/router/client_calls/call_context.h"

namespace tandem {
namespace {

constexpr char kServiceName[] = "tandem.v1.Generation";
constexpr char kDraftModelsService[] = "tandem.v1.DraftModels";
constexpr char kHealthService[] = "grpc.health.v1.Health";
constexpr int kMaxMetadataBytes = 16 << 10;
constexpr size_t kMaxGrpcBytes = size_t{512} << 20;
constexpr int kMaxGrpcThreads = 16;  // each stream of reflection holds one thread
constexpr auto kShutdownGrace = std::chrono::seconds(1);

const std::vector<std::string> kOwnMethods = {kGenerateMethod, kGenerateManyMethod, kTokenizeMethod,
                                              kDetokenizeMethod, kGetServerInfoMethod};
const std::vector<std::string> kAdminMethods = {
    kListDraftModelsMethod,     kLoadDraftModelMethod,   kPromoteDraftModelMethod,
    kRollBackDraftModelsMethod, kUnloadDraftModelMethod, kSwapHeadsMethod,
    kRollBackHeadsMethod};

// Returns a gate that allows these methods and denies all others.
std::shared_ptr<CallGate> MakeGate(const Address& listen, std::shared_ptr<TokenFile> tokens) {
  CallGate::Methods methods;
  methods.of_clients = kOwnMethods;
  for (const char* method : {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
                             "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                             "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"}) {
    methods.of_clients.emplace_back(method);
  }
  methods.of_admins = kAdminMethods;
  methods.admits_admins_without_tokens = listen.is_loopback();
  return std::make_shared<CallGate>(std::move(methods), std::move(tokens));
}

// The methods whose calls the router checks itself.
std::vector<std::string> CheckedByRouter() {
  std::vector<std::string> methods = kOwnMethods;
  methods.insert(methods.end(), kAdminMethods.begin(), kAdminMethods.end());
  return methods;
}

// Bounds the resources that a connection can use. gRPC's defaults do not bound them.
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
      // The server notices within 30 s that a client vanished.
      {GRPC_ARG_KEEPALIVE_TIME_MS, 20000},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000},
      {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2},
      {GRPC_ARG_MAX_CONNECTION_IDLE_MS, 3600 * 1000},
      {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10000},
  };
  for (const auto& [name, value] : arguments) builder->AddChannelArgument(name, value);
  if (options.max_connection_age_seconds > 0) {
    // An old connection takes no new streams. Its running streams finish, however long they take.
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                                static_cast<int>(options.max_connection_age_seconds * 1000));
  }
  // Only health checks and reflection use gRPC's threads.
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
}

// Logs the risks of an address that other machines can reach. The operator has allowed the address.
void WarnOfOpenDoors(const Address& listen, const ServerSecurity& security) {
  if (listen.is_loopback()) return;
  if (security.tls == nullptr) {
    spdlog::warn("--listen {}: prompts, texts{} are readable on the way (no --tls-certificate)",
                 listen.ToGrpc(), security.tokens == nullptr ? "" : " and tokens");
  }
  if (security.tokens == nullptr && !security.mutual_tls()) {
    spdlog::warn(
        "--listen {}: every client that reaches this address may use the server (no --token-file, "
        "no --tls-client-ca)",
        listen.ToGrpc());
  }
}

}  // namespace

ClientServer::ClientServer(const Address& listen)
    : listen_(listen),
      reflection_({kServiceName, kDraftModelsService, kHealthService,
                   "grpc.reflection.v1.ServerReflection",
                   "grpc.reflection.v1alpha.ServerReflection"}) {
  // Without a use, the linker would leave the description of the health service out.
  (void)grpc::health::v1::HealthCheckRequest::descriptor();
}

absl::StatusOr<std::unique_ptr<ClientServer>> ClientServer::Start(const RouterOptions& options,
                                                                  const Address& listen,
                                                                  const ServerSecurity& security) {
  std::unique_ptr<ClientServer> server(new ClientServer(listen));
  TANDEM_RETURN_IF_ERROR(server->Listen(options, security));
  return server;
}

absl::Status ClientServer::Listen(const RouterOptions& options, const ServerSecurity& security) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  ConfigureServer(options, &builder);
  builder.RegisterService(&service_);
  builder.RegisterService(&draft_models_);
  builder.RegisterService(&reflection_);
  WarnOfOpenDoors(listen_, security);
  gate_ = MakeGate(listen_, security.tokens);
  InterceptCalls(
      builder,
      [gate = gate_](std::string_view method, const auto& context) {
        return CheckCall(*gate, method, context);
      },
      /*without=*/CheckedByRouter());
  if (auto listener = Listener::Bind(listen_); listener.ok()) {
    listener_ = *std::move(listener);
  } else {
    return absl::Status(listener.status().code(),
                        "--listen: " + std::string(listener.status().message()));
  }
  listener_->AddTo(builder, MakeServerCredentials(listen_.is_unix() ? nullptr : security.tls));
  queue_ = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return Internal("the gRPC server cannot be started");
  listener_->Start();
  SetServing(false);
  return absl::OkStatus();
}

ClientServer::~ClientServer() {
  if (shutdown_.joinable()) shutdown_.join();
  if (queue_ == nullptr || queue_closed_) return;
  ShutdownNow();
  Drain();
}

void ClientServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  health->SetServingStatus("", serving);
  health->SetServingStatus(kServiceName, serving);
  serving_ = serving;
}

void ClientServer::Shutdown(std::function<void()> on_shut_down) {
  on_shut_down_ = std::move(on_shut_down);
  listener_->Stop();
  // Server::Shutdown waits for calls that the polling thread still has to finish, so it needs a
  // thread of its own.
  shutdown_ = std::thread([this] {
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    shut_down_alarm_.Set(queue_.get(), gpr_now(GPR_CLOCK_MONOTONIC), shut_down_tag_.get());
  });
}

void ClientServer::OnShutDown(bool /*ok*/) {
  shut_down_ = true;
  on_shut_down_();
}

void ClientServer::ShutdownNow() {
  if (shutdown_.joinable()) shutdown_.join();
  listener_->Stop();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
}

void ClientServer::CloseQueue() {
  queue_closed_ = true;
  queue_->Shutdown();
}

void ClientServer::Drain() {
  CloseQueue();
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) static_cast<AsyncTag*>(tag)->Proceed(ok);
}

}  // namespace tandem
