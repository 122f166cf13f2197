#include "services/worker/session/health_service.h"

#include <utility>

namespace tandem {
namespace {

// One stream of pings. gRPC calls the methods one after the other, and OnDone last.
class Watcher final : public grpc::ServerBidiReactor<v1::WatchPing, v1::WatchPong> {
 public:
  Watcher(SessionLeases* leases, const HealthService::Report& report)
      : leases_(leases), report_(report) {
    StartRead(&ping_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    leases_->Renew(ping_.session_token(), SessionLeases::Clock::now());
    pong_ = report_();
    StartWrite(&pong_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&ping_);
  }

  void OnDone() override { delete this; }

 private:
  SessionLeases* leases_;
  const HealthService::Report& report_;
  v1::WatchPing ping_;
  v1::WatchPong pong_;
};

}  // namespace

HealthService::HealthService(SessionLeases* leases, Report report)
    : leases_(leases), report_(std::move(report)) {}

grpc::ServerBidiReactor<v1::WatchPing, v1::WatchPong>* HealthService::Watch(
    grpc::CallbackServerContext* /*context*/) {
  return new Watcher(leases_, report_);
}

}  // namespace tandem
