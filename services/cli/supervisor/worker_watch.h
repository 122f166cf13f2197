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
  // Called at most once, with the reason why the worker counts as hung. Not called after the watch
  // is destroyed.
  using OnHung = std::function<void(const std::string& why)>;

  // `address` is "unix:PATH" or "HOST:PORT" of a worker that serves. The worker counts as hung if
  // it does not answer for `timeout_seconds`. It also counts as hung if it reports for ten times
  // this long that it computes without progress. The factor is large because the watch does not
  // know how long a layer takes.
  WorkerWatch(boost::asio::io_context& io, const std::string& address, double timeout_seconds,
              OnHung on_hung);
  ~WorkerWatch();
  WorkerWatch(const WorkerWatch&) = delete;
  WorkerWatch& operator=(const WorkerWatch&) = delete;

 private:
  struct Impl;  // keeps gRPC's headers out of this header
  std::shared_ptr<Impl> impl_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_WORKER_WATCH_H_
