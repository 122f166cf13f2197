// The server of a worker, as the main function sees it.
#ifndef TANDEM_SERVICES_WORKER_SESSION_WORKER_SERVER_H_
#define TANDEM_SERVICES_WORKER_SESSION_WORKER_SERVER_H_

#include <cstdint>
#include <functional>
#include <string>

namespace tandem {

class WorkerServer {
 public:
  virtual ~WorkerServer() = default;
  // The address to print after "ready: ", with the real port.
  virtual const std::string& address() const = 0;
  // Serves in the calling thread until Stop.
  virtual void Run() = 0;
  // The thread that is in Run calls `call` after each command and when a session ends. To be set
  // before Run.
  virtual void AfterEachCommand(std::function<void()> call) = 0;
  // Sets the load that every pong tells the routers from now on. Only the thread that is in Run
  // calls this function.
  virtual void ReportLoad(uint32_t num_open_slots, uint32_t num_free_pages) = 0;
  // Tells routers from now on to send no new requests. Returns when no slot is open, or after
  // HurryDrain. Any thread may call this function.
  virtual void AwaitDrain() = 0;
  virtual void HurryDrain() = 0;
  // Ends all sessions and makes Run return. Any thread may call this function, more than once.
  virtual void Stop() = 0;
  // Removes the socket files, for a process that must end at once. Any thread may call this
  // function.
  virtual void RemoveFiles() = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_WORKER_SESSION_WORKER_SERVER_H_
