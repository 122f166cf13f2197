// Pings a worker (WorkerHealth in worker.proto) and says when it hangs.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_WORKER_WATCH_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_WORKER_WATCH_H_

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

namespace tandem::cli {

// Not thread-safe: everything, the callback too, happens on the io_context's thread.
class WorkerWatch {
 public:
  // Once, unless the watch is gone before: why the worker counts as hung.
  using OnHung = std::function<void(const std::string& why)>;

  // `address` is "unix:PATH" or "HOST:PORT", of a worker that serves. It hangs when it does not
  // answer for `timeout_seconds`, or says for ten times as long that it computes and makes no
  // progress: who asks does not know how long its layers take.
  WorkerWatch(boost::asio::io_context& io, const std::string& address, double timeout_seconds,
              OnHung on_hung);
  ~WorkerWatch();
  WorkerWatch(const WorkerWatch&) = delete;
  WorkerWatch& operator=(const WorkerWatch&) = delete;

 private:
  struct Impl;  // keeps gRPC's headers out of here
  std::shared_ptr<Impl> impl_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_WORKER_WATCH_H_
