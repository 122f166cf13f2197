// The gRPC server that clients call.
#ifndef TANDEM_SERVICES_ROUTER_SERVER_CLIENT_SERVER_H_
#define TANDEM_SERVICES_ROUTER_SERVER_CLIENT_SERVER_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/address.h"
#include "common/rpc/async_tag.h"
#include "common/rpc/listener.h"
#include "common/security/call_gate.h"
#include "common/security/server_security.h"
#include "services/router/server/reflection_service.h"
#include "services/router/server/router_options.h"
#include "tandem/v1/draft_models.grpc.pb.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem {

// Listens, and decides which client may call which method. gRPC's own threads answer health checks
// and reflection. The calls of v1.Generation and v1.DraftModels come through the completion queue.
// The owner polls the queue, and calls all methods on the polling thread.
class ClientServer {
 public:
  // Listens at `listen`. Errors name --listen.
  static absl::StatusOr<std::unique_ptr<ClientServer>> Start(const RouterOptions& options,
                                                             const Address& listen,
                                                             const ServerSecurity& security);
  // Hands out the events that are left in the queue, unless the queue was closed.
  ~ClientServer();
  ClientServer(const ClientServer&) = delete;
  ClientServer& operator=(const ClientServer&) = delete;

  v1::Generation::AsyncService* service() { return &service_; }
  v1::DraftModels::AsyncService* draft_models() { return &draft_models_; }
  grpc::ServerCompletionQueue* queue() { return queue_.get(); }
  CallGate* gate() { return gate_.get(); }
  // The address that clients can use.
  std::string address() const { return listen_.ToString(listener_->port()); }

  // Sets the answer of health checks.
  void SetServing(bool serving);
  bool serving() const { return serving_; }

  // Takes no more connections and calls. Running calls have a second to end and are canceled then.
  // `on_shut_down` comes through the queue when no call is left.
  void Shutdown(std::function<void()> on_shut_down);
  bool is_shut_down() const { return shut_down_; }
  // Cancels all calls. Their ends come through the queue.
  void ShutdownNow();
  // Ends the queue. Called only when no event of ours is still to come through the queue.
  void CloseQueue();
  // Ends the queue, and hands out all events that are left in it.
  void Drain();

 private:
  explicit ClientServer(const Address& listen);
  absl::Status Listen(const RouterOptions& options, const ServerSecurity& security);
  void OnShutDown(bool ok);

  const Address listen_;
  std::shared_ptr<CallGate> gate_;
  v1::Generation::AsyncService service_;
  v1::DraftModels::AsyncService draft_models_;
  ReflectionService reflection_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
  bool serving_ = false;
  std::thread shutdown_;
  std::function<void()> on_shut_down_;
  bool shut_down_ = false;
  bool queue_closed_ = false;
  grpc::Alarm shut_down_alarm_;
  MemberTag<ClientServer> shut_down_tag_{this, &ClientServer::OnShutDown};
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SERVER_CLIENT_SERVER_H_
