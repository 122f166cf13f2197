#include "services/router/client_calls/background_work.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tandem {

BackgroundWork::BackgroundWork(grpc::CompletionQueue* queue)
    : books_(std::make_shared<Books>(queue)), thread_([books = books_] { Loop(*books); }) {}

void BackgroundWork::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(books_->mutex);
    books_->stopping = true;
  }
  books_->wake.notify_one();
  thread_.join();
}

void BackgroundWork::Abandon() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(books_->mutex);
    books_->stopping = true;
    books_->abandoned = true;
    books_->waiting.clear();
  }
  books_->wake.notify_one();
  thread_.detach();
}

bool BackgroundWork::quiet() const {
  const std::lock_guard<std::mutex> lock(books_->mutex);
  if (!books_->abandoned) return books_->jobs.empty();
  return std::none_of(books_->jobs.begin(), books_->jobs.end(),
                      [](const Job& job) { return job.announced; });
}

bool BackgroundWork::Run(std::function<void()> work, std::function<void()> done) {
  {
    const std::lock_guard<std::mutex> lock(books_->mutex);
    if (books_->stopping || books_->jobs.size() >= kMaxJobs) return false;
    Job& job = books_->jobs.emplace_back();
    job.books = books_.get();
    job.work = std::move(work);
    job.done = std::move(done);
    job.self = std::prev(books_->jobs.end());
    books_->waiting.push_back(&job);
  }
  books_->wake.notify_one();
  return true;
}

void BackgroundWork::Loop(Books& books) {
  std::unique_lock<std::mutex> lock(books.mutex);
  while (true) {
    books.wake.wait(lock, [&books] { return books.stopping || !books.waiting.empty(); });
    if (books.waiting.empty()) return;
    Job* job = books.waiting.front();
    books.waiting.pop_front();
    lock.unlock();
    job->work();
    lock.lock();
    if (books.abandoned) return;
    job->announced = true;
    // A time that is past is announced at once. The present may take a millisecond.
    job->alarm.Set(books.queue, gpr_inf_past(GPR_CLOCK_MONOTONIC), job->tag.get());
  }
}

void BackgroundWork::Job::OnAlarm(bool /*ok*/) {
  const std::function<void()> finish = std::move(done);
  {
    const std::lock_guard<std::mutex> lock(books->mutex);
    books->jobs.erase(self);  // destroys this
  }
  finish();
}

}  // namespace tandem
