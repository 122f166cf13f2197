// Long work beside the thread that polls the completion queue.
#ifndef TANDEM_SERVICES_ROUTER_BACKGROUND_WORK_H_
#define TANDEM_SERVICES_ROUTER_BACKGROUND_WORK_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

#include "common/rpc/async_tag.h"

namespace tandem {

// One thread that does one job after the other. Everything but the jobs themselves runs on the
// polling thread.
class BackgroundWork {
 public:
  static constexpr size_t kMaxJobs = 64;

  explicit BackgroundWork(grpc::CompletionQueue* queue);
  ~BackgroundWork() { Stop(); }
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  // `work` runs on the thread, then `done` on the polling one. False: kMaxJobs wait already, and
  // neither will run.
  bool Run(std::function<void()> work, std::function<void()> done);

  // Finishes what waits, and ends the thread. Each `done` still comes through the queue, which must
  // be polled.
  void Stop();

  // No job is under way, and none's `done` is still to come: only then may the queue be shut down.
  bool quiet() const { return jobs_.empty(); }

 private:
  struct Job {
    BackgroundWork* owner;
    std::function<void()> work;
    std::function<void()> done;
    std::list<Job>::iterator self;
    grpc::Alarm alarm;
    MemberTag<Job> tag{this, &Job::OnAlarm};
    void OnAlarm(bool ok);
  };
  void Loop();

  grpc::CompletionQueue* queue_;
  std::list<Job> jobs_;  // of the polling thread: all whose `done` is to come
  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Job*> waiting_;  // guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_BACKGROUND_WORK_H_
