#include "services/cli/bench/serve/bench_serve_load.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <list>
#include <queue>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "common/security/channel_credentials.h"
#include "tandem/v1/generate.grpc.pb.h"

namespace tandem::cli {

namespace {

using Clock = std::chrono::steady_clock;

// Below the router's limit for one connection (--max-streams).
constexpr int kStreamsPerConnection = 250;
constexpr double kPauseAfterFailure = 0.1;
constexpr double kProgressSeconds = 0.1;

// One call. It has at most one operation in progress, and serves as the tag of this operation.
struct Stream {
  enum class State { kStarting, kReading, kFinishing };

  State state = State::kStarting;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateResponse>> reader;
  v1::GenerateResponse message;
  grpc::Status status;
  v1::Completion completion;
  int cancel_after_tokens = -1;
  bool left = false;  // canceled as planned
  double sent_at = 0;
  double first_token_at = 0;
  double last_token_at = 0;
  int tokens = 0;
  std::vector<double> gaps;
  std::list<Stream>::iterator self;
};

// Returns the seconds until a refused client may come back.
double PauseAfter(const Stream& stream) {
  const auto& metadata = stream.context.GetServerTrailingMetadata();
  const auto found = metadata.find("grpc-retry-pushback-ms");
  if (found == metadata.end()) return kPauseAfterFailure;
  const std::string text(found->second.data(), found->second.size());
  const double milliseconds = std::strtod(text.c_str(), nullptr);
  return milliseconds > 0 ? milliseconds * 1e-3 : kPauseAfterFailure;
}

}  // namespace

struct LoadClient::Impl {
  std::string authorization;                                 // empty: none
  std::vector<std::unique_ptr<v1::Generation::Stub>> stubs;  // one for each connection
  grpc::CompletionQueue queue;
};

namespace {

// One run.
class LoadRun {
 public:
  LoadRun(const LoadStep& step, const LoadClient::Plan& plan,
          const std::vector<std::unique_ptr<v1::Generation::Stub>>& stubs,
          const std::string& authorization, grpc::CompletionQueue* queue, LoadResult* result)
      : step_(step),
        plan_(plan),
        stubs_(stubs),
        authorization_(authorization),
        queue_(queue),
        result_(result),
        random_(step.seed),
        start_(Clock::now()) {
    // All clients start at the same time.
    for (int i = 0; i < step.clients; ++i) due_.push(0);
    if (step.clients == 0) due_.push(NextGap());
  }

  double Run(const LoadClient::OnProgress& on_progress) {
    double next_progress = kProgressSeconds;
    while (true) {
      double now = Now();
      if (!measuring_ && now >= step_.warm_up_seconds) {
        measuring_ = true;
        measured_from_ = now;
        step_.on_measured();
      }
      if (now >= next_progress) {
        next_progress = now + kProgressSeconds;
        if (!on_progress(Fraction(now))) End(now);
      }
      if (step_.seconds > 0 && now >= AllSeconds()) End(now);
      while (!ended_ && !due_.empty() && due_.top() <= now) Send(now);
      if (streams_.empty() && (ended_ || AllSent())) break;
      double until = next_progress;
      if (!ended_ && !due_.empty()) until = std::min(until, due_.top());
      if (!ended_ && step_.seconds > 0) until = std::min(until, AllSeconds());
      if (!measuring_) until = std::min(until, step_.warm_up_seconds);
      void* tag = nullptr;
      bool ok = false;
      const auto deadline =
          std::chrono::system_clock::now() +
          std::chrono::microseconds(static_cast<int64_t>(std::max(0.0, until - now) * 1e6) + 1);
      if (queue_->AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) {
        Proceed(*static_cast<Stream*>(tag), ok);
      }
    }
    if (!ended_) ended_at_ = Now();
    if (!measuring_) return 0;  // interrupted
    const double seconds = ended_at_ - measured_from_;
    result_->wall_seconds += seconds;
    return static_cast<double>(tokens_) / seconds;
  }

 private:
  double Now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  double NextGap() { return std::exponential_distribution<double>(step_.rate)(random_); }

  double AllSeconds() const { return step_.warm_up_seconds + step_.seconds; }

  bool AllSent() const { return step_.requests > 0 && num_sent_ >= step_.requests; }

  double Fraction(double now) const {
    return step_.requests > 0
               ? static_cast<double>(num_ended_) / static_cast<double>(step_.requests)
               : now / AllSeconds();
  }

  // Called when the measured time is over. Cancels every call. Later events do not count.
  void End(double now) {
    if (std::exchange(ended_, true)) return;
    ended_at_ = now;
    for (Stream& stream : streams_) stream.context.TryCancel();
  }

  void Send(double now) {
    const double due = due_.top();
    due_.pop();
    if (AllSent()) return;
    if (step_.clients == 0) due_.push(due + NextGap());
    PlannedRequest planned = plan_(static_cast<uint64_t>(num_sent_));
    const size_t connection = static_cast<size_t>(num_sent_) % stubs_.size();
    ++num_sent_;
    const auto self = streams_.emplace(streams_.end());
    Stream& stream = *self;
    stream.self = self;
    stream.cancel_after_tokens = planned.cancel_after_tokens;
    stream.sent_at = now;
    if (!authorization_.empty()) stream.context.AddMetadata("authorization", authorization_);
    if (!step_.tenant.empty()) stream.context.AddMetadata("tandem-tenant", step_.tenant);
    stream.reader =
        stubs_[connection]->PrepareAsyncGenerate(&stream.context, planned.request, queue_);
    stream.reader->StartCall(&stream);
    result_->most_open = std::max(result_->most_open, static_cast<int>(streams_.size()));
  }

  void Proceed(Stream& stream, bool ok) {
    if (stream.state == Stream::State::kFinishing) return Finished(stream);
    if (ok && stream.state == Stream::State::kReading) Read(stream);
    if (stream.cancel_after_tokens >= 0 && stream.tokens >= stream.cancel_after_tokens &&
        !std::exchange(stream.left, true)) {
      stream.context.TryCancel();
    }
    if (!ok) {
      stream.state = Stream::State::kFinishing;
      stream.reader->Finish(&stream.status, &stream);
      return;
    }
    stream.state = Stream::State::kReading;
    stream.reader->Read(&stream.message, &stream);
  }

  void Read(Stream& stream) {
    const int count = stream.message.token_ids_size();
    if (count > 0 && !ended_) {
      const double now = Now();
      if (stream.tokens == 0) {
        stream.first_token_at = now;
      } else {
        stream.gaps.push_back(now - stream.last_token_at);
      }
      stream.last_token_at = now;
      stream.tokens += count;
      if (measuring_) {
        tokens_ += count;
        result_->tokens += count;
      }
    }
    if (stream.message.has_completion())
      stream.completion.Swap(stream.message.mutable_completion());
  }

  void Finished(Stream& stream) {
    if (!ended_) {
      ++num_ended_;
      double pause = 0;
      const bool as_planned =
          stream.left && stream.status.error_code() == grpc::StatusCode::CANCELLED;
      if (!stream.status.ok() && !as_planned) pause = PauseAfter(stream);
      if (measuring_) Count(stream, as_planned);
      if (step_.clients > 0) due_.push(Now() + pause);
    }
    streams_.erase(stream.self);
  }

  void Count(const Stream& stream, bool as_planned) {
    if (!stream.status.ok()) {
      if (as_planned) {
        ++result_->canceled;
      } else {
        ++result_->failures[absl::StatusCodeToString(
            static_cast<absl::StatusCode>(stream.status.error_code()))];
        if (stream.tokens == 0 && stream.sent_at >= measured_from_) {
          result_->refused.push_back(Now() - stream.sent_at);
        }
      }
      return;
    }
    ++result_->finished;
    if (stream.sent_at < measured_from_) return;  // its times belong to the warm-up
    if (stream.tokens > 0) result_->first_token.push_back(stream.first_token_at - stream.sent_at);
    if (stream.tokens > 1) {
      result_->time_per_token.push_back((stream.last_token_at - stream.first_token_at) /
                                        (stream.tokens - 1));
    }
    result_->gaps.insert(result_->gaps.end(), stream.gaps.begin(), stream.gaps.end());
    result_->queue.push_back(stream.completion.timings().queue_seconds());
    result_->prompt_tokens += stream.completion.usage().prompt_tokens();
    result_->cached_prompt_tokens += stream.completion.usage().cached_prompt_tokens();
    result_->totals.Add(stream.completion);
  }

  const LoadStep& step_;
  const LoadClient::Plan& plan_;
  const std::vector<std::unique_ptr<v1::Generation::Stub>>& stubs_;
  const std::string& authorization_;
  grpc::CompletionQueue* queue_;
  LoadResult* result_;
  std::mt19937_64 random_;
  Clock::time_point start_;
  std::list<Stream> streams_;
  // The times when the clients without a request, or the next arrival, are due. Seconds since the
  // start.
  std::priority_queue<double, std::vector<double>, std::greater<>> due_;
  int64_t num_sent_ = 0;
  int64_t num_ended_ = 0;
  int64_t tokens_ = 0;
  bool measuring_ = false;    // the warm-up is over
  double measured_from_ = 0;  // seconds since the start
  bool ended_ = false;
  double ended_at_ = 0;
};

}  // namespace

LoadClient::LoadClient(const std::string& address, int max_streams, const ClientSecurity& security,
                       int connections)
    : impl_(std::make_unique<Impl>()) {
  impl_->authorization = security.Authorization();
  connections = std::max(connections, (std::max(1, max_streams) - 1) / kStreamsPerConnection + 1);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // never send a loopback address to a proxy
  // Otherwise all channels would share one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  for (int i = 0; i < connections; ++i) {
    impl_->stubs.push_back(v1::Generation::NewStub(
        grpc::CreateCustomChannel(address, MakeChannelCredentials(security.tls.get()), arguments)));
  }
}

LoadClient::~LoadClient() {
  impl_->queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (impl_->queue.Next(&tag, &ok)) {
  }
}

double LoadClient::Run(const LoadStep& step, const Plan& plan, const OnProgress& on_progress,
                       LoadResult* result) {
  return LoadRun(step, plan, impl_->stubs, impl_->authorization, &impl_->queue, result)
      .Run(on_progress);
}

}  // namespace tandem::cli
