// A thread for long work, beside the thread that polls the completion queue.
#ifndef TANDEM_SERVICES_ROUTER_CLIENT_CALLS_BACKGROUND_WORK_H_
#define TANDEM_SERVICES_ROUTER_CLIENT_CALLS_BACKGROUND_WORK_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "common/rpc/async_tag.h"

namespace tandem {

// One thread that does one job after the other. Only a job's `work` runs on this thread. Everything
// else runs on the polling thread.
class BackgroundWork {
 public:
  static constexpr size_t kMaxJobs = 64;

  explicit BackgroundWork(grpc::CompletionQueue* queue);
  ~BackgroundWork() { Stop(); }
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  // Runs `work` on the thread, then `done` on the polling thread. Returns false, and runs neither,
  // if kMaxJobs jobs are not done yet or the thread ends.
  bool Run(std::function<void()> work, std::function<void()> done);

  // Finishes the jobs that wait, and ends the thread. Each `done` still comes through the queue,
  // which must be polled.
  void Stop();

  // For work that may hang. Forgets the jobs that wait, and leaves the thread with the current job
  // alone. The job must own everything that it uses, and its `done` never runs.
  void Abandon();

  // Returns true if no job is under way and no `done` is still to come. Only then may the queue be
  // shut down.
  bool quiet() const;

 private:
  struct Books;
  struct Job {
    Books* books;
    std::function<void()> work;
    std::function<void()> done;
    std::list<Job>::iterator self;
    bool announced = false;  // `done` is on the way through the queue
    grpc::Alarm alarm;
    MemberTag<Job> tag{this, &Job::OnAlarm};
    void OnAlarm(bool ok);
  };
  // Shared with the thread, which may outlive its owner.
  struct Books {
    explicit Books(grpc::CompletionQueue* polled) : queue(polled) {}
    grpc::CompletionQueue* const queue;
    std::mutex mutex;  // guards the members below
    std::condition_variable wake;
    std::list<Job> jobs;  // all jobs whose `done` has not run
    std::list<Job*> waiting;
    bool stopping = false;
    bool abandoned = false;
  };
  static void Loop(Books& books);

  std::shared_ptr<Books> books_;
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_CLIENT_CALLS_BACKGROUND_WORK_H_
