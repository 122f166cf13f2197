#include "services/cli/supervisor/worker_watch.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/heartbeat.h"
#include "services/cli/supervisor/hand_over.h"
#include "tandem/v1/worker.grpc.pb.h"

namespace tandem::cli {

namespace {

constexpr double kStandstillFactor = 10;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  // A channel of the worker's former life may be waiting to reconnect.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

struct WorkerWatch::Impl : std::enable_shared_from_this<Impl> {
  // One stream. gRPC calls it on gRPC's own threads. All other calls come from the io_context's
  // thread, which also destroys the stream. The destructor may release the last reference to gRPC's
  // threads, and these threads cannot wait for their own end.
  class Stream final : public grpc::ClientBidiReactor<v1::WatchPing, v1::WatchPong> {
   public:
    Stream(std::weak_ptr<Impl> owner, boost::asio::io_context& io)
        : owner_(std::move(owner)), io_(io) {}

    void Start(v1::WorkerHealth::Stub& service) {
      HandOver(this);
      service.async()->Watch(&context_, this);
      AddHold();  // pings come from outside the reactor
      StartRead(&pong_);
      StartCall();
    }
    void Ping() {
      if (writing_.exchange(true)) return;  // the ping before has not been sent yet
      StartWrite(&ping_);
    }
    // Waits until gRPC has finished with the stream, which happens at once after the cancellation.
    ~Stream() override {
      context_.TryCancel();
      RemoveHold();
      done_->get_future().wait();
    }

    void OnReadDone(bool ok) override {
      TakeOver(this);
      if (!ok) return Tell([](Impl& owner) { owner.OnBroken(); });
      Tell([pong = pong_](Impl& owner) { owner.OnPong(pong); });
      StartRead(&pong_);
    }
    void OnWriteDone(bool /*ok*/) override {
      TakeOver(this);
      writing_ = false;
    }
    void OnDone(const grpc::Status& /*status*/) override {
      TakeOver(this);
      const auto done = done_;  // when it is set, this object may be gone
      done->set_value();
    }

   private:
    template <typename F>
    void Tell(F what) {
      // The posted function keeps no reference to this object, which may be gone by then.
      boost::asio::post(io_, [owner = owner_, what = std::move(what)] {
        if (const auto alive = owner.lock()) what(*alive);
      });
    }

    std::weak_ptr<Impl> owner_;
    boost::asio::io_context& io_;
    grpc::ClientContext context_;
    v1::WatchPing ping_;  // names no session
    v1::WatchPong pong_;
    std::atomic<bool> writing_ = false;
    std::shared_ptr<std::promise<void>> done_ = std::make_shared<std::promise<void>>();
  };

  Impl(boost::asio::io_context& context, const std::string& address, double timeout, OnHung hung)
      : io(context),
        timer(context),
        stub(v1::WorkerHealth::NewStub(Connect(address))),
        timeout_seconds(timeout),
        on_hung(std::move(hung)) {}

  void Begin() {
    heartbeat.Begin(Now());
    Ping();
  }

  void End() {
    timer.cancel();
    on_hung = nullptr;
    stream.reset();
  }

  void Ping() {
    if (stream == nullptr) {
      stream = std::make_unique<Stream>(weak_from_this(), io);
      stream->Start(*stub);
    }
    stream->Ping();
    timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(kPingSeconds)));
    timer.async_wait([self = weak_from_this()](const auto& error) {
      if (const auto alive = self.lock(); alive != nullptr && !error) alive->OnTimer();
    });
  }

  void OnTimer() {
    if (on_hung == nullptr) return;
    const double standstill = kStandstillFactor * timeout_seconds;
    switch (heartbeat.Check(timeout_seconds, standstill, Now())) {
      case Heartbeat::State::kAlive:
        return Ping();
      case Heartbeat::State::kSilent:
        return std::exchange(
            on_hung, nullptr)(absl::StrCat("gave no sign of life for ", timeout_seconds, " s"));
      case Heartbeat::State::kStuck:
        return std::exchange(
            on_hung, nullptr)(absl::StrCat("computed without progress for ", standstill, " s"));
    }
  }

  void OnPong(const v1::WatchPong& pong) {
    heartbeat.OnPong(pong.progress(), pong.computing(), Now());
  }
  // Drops the stream. The next ping opens a new one.
  void OnBroken() { stream.reset(); }

  boost::asio::io_context& io;
  boost::asio::steady_timer timer;
  std::unique_ptr<v1::WorkerHealth::Stub> stub;
  const double timeout_seconds;
  OnHung on_hung;
  Heartbeat heartbeat;
  std::unique_ptr<Stream> stream;
};

WorkerWatch::WorkerWatch(boost::asio::io_context& io, const std::string& address,
                         double timeout_seconds, OnHung on_hung)
    : impl_(std::make_shared<Impl>(io, address, timeout_seconds, std::move(on_hung))) {
  impl_->Begin();
}

WorkerWatch::~WorkerWatch() { impl_->End(); }

}  // namespace tandem::cli
