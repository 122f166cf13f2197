#include "services/router/background_work.h"

#include <iterator>
#include <utility>

namespace tandem {

BackgroundWork::BackgroundWork(grpc::CompletionQueue* queue)
    : queue_(queue), thread_([this] { Loop(); }) {}

void BackgroundWork::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool BackgroundWork::Run(std::function<void()> work, std::function<void()> done) {
  if (jobs_.size() >= kMaxJobs) return false;
  Job& job = jobs_.emplace_back();
  job.owner = this;
  job.work = std::move(work);
  job.done = std::move(done);
  job.self = std::prev(jobs_.end());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(&job);
  }
  wake_.notify_one();
  return true;
}

void BackgroundWork::Loop() {
  while (true) {
    Job* job = nullptr;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      job = waiting_.front();
      waiting_.pop_front();
    }
    job->work();
    job->alarm.Set(queue_, gpr_now(GPR_CLOCK_MONOTONIC), job->tag.get());
  }
}

void BackgroundWork::Job::OnAlarm(bool /*ok*/) {
  const std::function<void()> finish = std::move(done);
  owner->jobs_.erase(self);  // destroys this
  finish();
}

}  // namespace tandem
