// A worker that listens, as its main function sees it.
#ifndef TANDEM_SERVICES_WORKER_WORKER_SERVER_H_
#define TANDEM_SERVICES_WORKER_WORKER_SERVER_H_

#include <cstdint>
#include <functional>
#include <string>

namespace tandem {

class WorkerServer {
 public:
  virtual ~WorkerServer() = default;
  // What to print after "ready: ": with the real port.
  virtual const std::string& address() const = 0;
  // Serves in the calling thread until Stop.
  virtual void Run() = 0;
  // `call` is called by the thread that runs, after each command and when a session ends. To be set
  // before Run.
  virtual void AfterEachCommand(std::function<void()> call) = 0;
  // By the thread that runs: what routers are told about the load, with every pong from now on.
  virtual void ReportLoad(uint32_t num_open_slots, uint32_t num_free_pages) = 0;
  // By any thread: from now on routers are told to bring nothing new. Returns when no slot is open,
  // or after HurryDrain.
  virtual void AwaitDrain() = 0;
  virtual void HurryDrain() = 0;
  // By any thread, once or more: ends all sessions and makes Run return.
  virtual void Stop() = 0;
  // By any thread: removes its socket files, for a process that must end at once.
  virtual void RemoveFiles() = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_WORKER_SERVER_H_
