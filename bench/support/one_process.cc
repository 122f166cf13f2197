#include "bench/support/one_process.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <thread>
#include <utility>
#include <variant>

#include "bench/support/event_queue.h"
#include "common/ring/ring_socket.h"
#include "common/status.h"
#include "common/tokenizer/tokenizer.h"
#include "services/draft/drafter_session.h"
#include "services/router/fleet/fleet.h"
#include "services/router/request/request_validator.h"
#include "services/verifier/verifier_session.h"
#include "services/worker/worker_model.h"

namespace tandem::bench {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kStartTimeout{60};
constexpr std::chrono::seconds kIdleWait{1};

double Now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// A thread that runs its work in order.
class WorkThread {
 public:
  WorkThread() : thread_([this] { Run(); }) {}
  ~WorkThread() {
    events_.Push([this] { stopped_ = true; });
    thread_.join();
  }

  void Post(EventQueue::Event event) { events_.Push(std::move(event)); }

 private:
  void Run() {
    while (!stopped_) {
      if (auto event = events_.Pop(Clock::now() + kIdleWait)) (*event)();
    }
  }

  EventQueue events_;
  bool stopped_ = false;  // used only by the thread
  std::thread thread_;
};

// The sessions of a worker, on a thread of their own.
template <typename Handler, typename Command, typename Reply>
class WorkerThread {
 public:
  using Factory = std::function<std::unique_ptr<Handler>()>;
  using OnReply = std::function<void(SessionId, Reply)>;  // called on this thread

  WorkerThread(Factory make_handler, OnReply on_reply)
      : make_handler_(std::move(make_handler)), on_reply_(std::move(on_reply)) {}

  void Open(SessionId session) {
    thread_.Post([this, session] { handlers_[session] = make_handler_(); });
  }
  void Close(SessionId session) {
    thread_.Post([this, session] { handlers_.erase(session); });
  }
  // A session that fails says so in its reply, and the engine then gives the session up.
  void Send(SessionId session, Command command) {
    thread_.Post([this, session, command = std::move(command)] {
      const auto found = handlers_.find(session);
      if (found == handlers_.end()) return;
      const absl::Status ignored = found->second->Handle(
          command, [this, session](Reply reply) { on_reply_(session, std::move(reply)); });
    });
  }

 private:
  Factory make_handler_;
  OnReply on_reply_;
  std::map<SessionId, std::unique_ptr<Handler>> handlers_;  // used only by the thread
  WorkThread thread_;  // last, because the thread must end before the members that it uses
};

struct OneProcess::Impl {
  using Drafter = WorkerThread<DrafterSession, v1::DraftCommand, v1::DraftReply>;
  using Verifier = WorkerThread<VerifierSession, v1::VerifierCommand, v1::VerifierReply>;

  Impl(std::unique_ptr<Tokenizer> its_tokenizer, std::unique_ptr<WorkerModel> its_target,
       std::unique_ptr<WorkerModel> its_draft, std::unique_ptr<RingListener> its_listener,
       const EngineOptions& options)
      : tokenizer(std::move(its_tokenizer)),
        target(std::move(its_target)),
        draft(std::move(its_draft)),
        ring_listener(std::move(its_listener)),
        validator(RequestLimits(), tokenizer.get(), [this] { return ++last_random; }),
        fleet(options, tokenizer.get()),
        drafter([this] { return std::make_unique<DrafterSession>(draft.get()); },
                [this](SessionId session, v1::DraftReply reply) {
                  Post([this, session, reply = std::move(reply)]() mutable {
                    fleet.OnDraftReply(session, reply, Now());
                  });
                }),
        verifier(
            [this] {
              return std::make_unique<VerifierSession>(target.get(), ring_listener.get(), &shared);
            },
            [this](SessionId session, v1::VerifierReply reply) {
              Post([this, session, reply = std::move(reply)]() mutable {
                fleet.OnVerifierReply(session, reply, Now());
              });
            }),
        router([this] { RunRouter(); }) {}

  ~Impl() {
    Post([this] {
      fleet.Stop(Now());
      stopped = true;
    });
    router.join();
  }

  void Post(EventQueue::Event event) { events.Push(std::move(event)); }

  // The router's thread: does the same as RouterServer::Run, but without sockets.
  void RunRouter() {
    fleet.Start(Now());
    fleet.SetPods({{"verifier", {"draft"}}}, Now());
    Execute();
    while (!stopped) {
      const double wait = std::min(1.0, std::max(0.0, fleet.NextDeadline() - Now()));
      const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                            std::chrono::duration<double>(wait));
      if (auto event = events.Pop(until)) (*event)();
      if (Now() >= fleet.NextDeadline()) fleet.Tick(Now());
      Execute();
      const WorkerSessions& workers = fleet.engine(0).workers();
      if (!ready_set && workers.ready(kVerifierPeer) && workers.ready(kDrafterPeer) &&
          workers.ring(kDrafterPeer).open()) {
        ready_set = true;
        ready.set_value();
      }
    }
  }

  void Execute() {
    for (EngineCommands commands = fleet.TakeCommands(); !commands.empty();
         commands = fleet.TakeCommands()) {
      for (EngineCommand& command : commands) Execute(command);
      fleet.OnCommandsSent(Now());
    }
  }

  void Execute(EngineCommand& command) {
    if (const auto* open = std::get_if<OpenSession>(&command)) {
      KindOf(open->peer) == Worker::kDrafter ? drafter.Open(open->session)
                                             : verifier.Open(open->session);
    } else if (const auto* close = std::get_if<CloseSession>(&command)) {
      drafter.Close(close->session);
      verifier.Close(close->session);
    } else if (auto* to_drafter = std::get_if<SendToDrafter>(&command)) {
      drafter.Send(to_drafter->session, std::move(to_drafter->command));
    } else if (auto* to_verifier = std::get_if<SendToVerifier>(&command)) {
      verifier.Send(to_verifier->session, std::move(to_verifier->command));
    } else if (const auto* ping = std::get_if<SendPing>(&command)) {
      // Workers of one process cannot hang alone.
      v1::WatchPong pong;
      pong.set_progress(++num_pongs);
      fleet.OnPong(ping->worker, ping->session, pong, Now());
    } else if (auto* write = std::get_if<WriteResponse>(&command)) {
      answer.MergeFrom(write->response);
    } else if (const auto* finish = std::get_if<FinishCall>(&command)) {
      if (finish->call == call) finished.set_value(finish->status);
    }
  }

  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<WorkerModel> target;
  std::unique_ptr<WorkerModel> draft;
  std::unique_ptr<RingListener> ring_listener;
  VerifierShared shared{target.get()};
  uint64_t last_random = 0;
  RequestValidator validator;
  EventQueue events;

  // The members below are used only by the router's thread, except for the futures.
  Fleet fleet;
  bool stopped = false;
  bool ready_set = false;
  std::promise<void> ready;
  uint64_t num_pongs = 0;

  CallId call = 0;  // the running call
  v1::GenerateResponse answer;
  std::promise<absl::Status> finished;

  Drafter drafter;
  Verifier verifier;
  std::thread router;
};

OneProcess::OneProcess(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OneProcess::~OneProcess() = default;

absl::StatusOr<std::unique_ptr<OneProcess>> OneProcess::Start(const OneProcessOptions& options) {
  const auto load = [&](const std::filesystem::path& folder, bool is_draft) {
    WorkerModelOptions model;
    model.folder = folder;
    model.threads = options.threads;
    model.max_slots = options.max_slots;
    model.max_context = options.max_context;
    model.may_cut_context = is_draft;
    return WorkerModel::Load(model);
  };
  TANDEM_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load(options.target));
  TANDEM_ASSIGN_OR_RETURN(auto target, load(options.target, false));
  TANDEM_ASSIGN_OR_RETURN(auto draft, load(options.draft, true));
  TANDEM_ASSIGN_OR_RETURN(auto ring_listener, RingListener::Start({}));
  EngineOptions engine;
  engine.workers.max_slots = static_cast<uint32_t>(options.max_slots);
  std::unique_ptr<OneProcess> process(
      new OneProcess(std::make_unique<Impl>(std::move(tokenizer), std::move(target),
                                            std::move(draft), std::move(ring_listener), engine)));
  if (process->impl_->ready.get_future().wait_for(kStartTimeout) != std::future_status::ready) {
    return Unavailable("the workers did not attach within a minute (do the models fit?)");
  }
  return process;
}

absl::StatusOr<v1::GenerateResponse> OneProcess::Generate(const v1::GenerateRequest& request) {
  impl_->finished = std::promise<absl::Status>();
  std::future<absl::Status> finished = impl_->finished.get_future();
  impl_->Post([this, &request] {
    Impl& impl = *impl_;
    impl.answer.Clear();
    ++impl.call;
    const v1::AttachReply& verifier = *impl.fleet.engine(0).workers().info(kVerifierPeer);
    ServedModel served;
    served.draft_models = {impl.fleet.engine(0).workers().drafter_name(kDrafterPeer)};
    served.vocabulary_size = verifier.vocabulary_size();
    served.max_context_tokens = verifier.max_context_tokens();
    auto validated = impl.validator.Validate(request, served);
    if (!validated.ok()) return impl.finished.set_value(validated.status());
    impl.fleet.OnRequest(impl.call, *std::move(validated), Now());
  });
  TANDEM_RETURN_IF_ERROR(finished.get());
  return std::move(impl_->answer);
}

}  // namespace tandem::bench
