#include "tests/simulator/world.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/router/fleet/fleet_drafters.h"
#include "tests/simulator/describe.h"

namespace tandem::simulator {
namespace {

// Largest number of steps of a run. A normal run takes some hundred steps, and a second or two of
// simulated time.
constexpr int kMostSteps = 200000;
constexpr double kPatienceSeconds = 60;
constexpr int kMostOverdueTicks = 3;
// If a stream loses a message, its transport ends the stream after this time.
constexpr double kTransportSeconds = 0.4;

bool IsAboutSlots(const WorkerCommand& command) {
  if (const auto* draft = std::get_if<v1::DraftCommand>(&command)) {
    return draft->has_propose() || draft->has_update_slots();
  }
  const auto& verifier = std::get<v1::VerifierCommand>(command);
  return verifier.has_verify() || verifier.has_update_slots() || verifier.has_log_prob_chunk();
}

bool IsAboutSlots(const WorkerReply& reply) {
  if (const auto* draft = std::get_if<v1::DraftReply>(&reply)) {
    return draft->has_propose() || draft->has_update_slots() || draft->has_log_prob_chunk();
  }
  const auto& verifier = std::get<v1::VerifierReply>(reply);
  return verifier.has_verify() || verifier.has_update_slots();
}

uint64_t IdOf(const WorkerReply& reply) {
  return std::visit([](const auto& message) { return message.id(); }, reply);
}

// Whether each verifier has the heads that its router wants, or said that it cannot have them.
bool HeadsAreSettled(const Fleet& fleet) {
  for (size_t pod = 0; pod < fleet.num_pods(); ++pod) {
    const PodEngine& engine = fleet.engine(pod);
    if (!engine.state().draft_models.roster().heads().wanted().has_value()) continue;
    const WorkerSessions& workers = engine.workers();
    if (!workers.ready(kVerifierPeer) || workers.heads().under_way()) return false;
  }
  return true;
}

}  // namespace

World::World(const Scenario* scenario, PlantedBug bug, std::string* trace)
    : scenario_(scenario),
      bug_(bug),
      trace_(trace),
      tokenizer_(
          testing::ToyTokenizer::OfSize(static_cast<size_t>(scenario->pair.vocabulary_size))),
      random_(scenario->seed ^ 0x5DEECE66DULL),
      pods_(scenario->num_pods),
      checker_(scenario, &tokenizer_,
               [this](RouterId router, Worker, SessionId session) -> const FakeSlots* {
                 const auto found = routers_[router]->streams.find(session);
                 if (found == routers_[router]->streams.end()) return nullptr;
                 const Stream& stream = *found->second;
                 if (stream.process == nullptr || !stream.worker_open) return nullptr;
                 return stream.process->worker.slots(stream.id);
               }) {
  corpus_.documents = scenario->corpus;
  for (size_t pod = 0; pod < pods_.size(); ++pod) {
    pods_[pod].spec.verifier = absl::StrCat("verifier-", pod);
    // A worker runs even if the router is told of no drafter.
    const uint32_t num_drafters = std::max(scenario->engine.workers.num_drafters, 1U);
    for (PeerId peer = kDrafterPeer; peer <= num_drafters; ++peer) {
      pods_[pod].spec.drafters.push_back(absl::StrCat(PeerName(peer), "-of-", pod));
    }
    pods_[pod].processes.resize(1 +
                                std::max(num_drafters, NumDraftPlaces(scenario->engine.workers)));
  }
}

std::shared_ptr<World::Process> World::AnyOf(uint32_t pod, Worker worker) {
  const auto& processes = pods_[pod].processes;
  if (worker == Worker::kVerifier) return processes[kVerifierPeer];
  if (processes.size() == 2) return processes[kDrafterPeer];
  return processes[static_cast<size_t>(random_.Between(1, static_cast<int>(processes.size()) - 1))];
}

std::string World::NameOf(uint32_t pod, PeerId peer) const {
  const std::string of_pod = pods_.size() > 1 ? absl::StrCat(" of pod ", pod) : "";
  return absl::StrCat("the ", PeerName(peer), " worker", of_pod);
}

void World::Trace(const std::function<std::string()>& line) {
  if (trace_ != nullptr) absl::StrAppend(trace_, absl::StrFormat("%10.5f  ", now_), line(), "\n");
}

void World::At(double at, std::function<void()> run) {
  events_.push_back({std::max(at, now_), ++last_event_, std::move(run)});
  std::push_heap(events_.begin(), events_.end());
}

void World::Deliver(double at, std::function<void()> run) {
  ++num_under_way_;
  At(at, [this, run = std::move(run)] {
    --num_under_way_;
    run();
  });
}

// A run that found something ends with jobs that keep their processes.
World::~World() {
  for (const Pod& pod : pods_) {
    for (const auto& process : pod.processes) {
      if (process == nullptr) continue;
      process->inbox.clear();
      process->late.clear();
    }
  }
}

// ---------------------------------------------------------------- the run

RunResult World::Run() {
  for (uint32_t pod = 0; pod < pods_.size(); ++pod) {
    StartProcess(pod, kVerifierPeer, false);
    for (PeerId peer = kDrafterPeer; peer < pods_[pod].processes.size(); ++peer) {
      if (scenario_->drafter_starts_at <= kStartTime) {
        StartProcess(pod, peer, false);
        continue;
      }
      At(scenario_->drafter_starts_at, [this, pod, peer] {
        if (process(pod, peer) == nullptr) StartProcess(pod, peer, false);
      });
    }
  }
  for (uint32_t i = 0; i < scenario_->num_routers; ++i) StartRouter();
  for (const ClientPlan& plan : scenario_->clients) At(plan.at, [this, &plan] { Arrive(plan); });
  for (const Swap& swap : scenario_->swaps) At(swap.at, [this, &swap] { Apply(swap); });
  for (const Fault& fault : scenario_->faults) At(fault.at, [this, &fault] { Inject(fault); });
  At(scenario_->heals_at, [this] { Heal(); });

  while (!checker_.finding().has_value() && !IsQuiet()) Step();
  if (!checker_.finding().has_value()) {
    for (const auto& router : routers_) {
      if (router->alive) checker_.OnQuiet(router->id, *router->fleet);
    }
    CheckHeads();
    for (const Pod& pod : pods_) {
      for (const auto& process : pod.processes) {
        const WorkerPlan& plan =
            process->peer == kVerifierPeer ? scenario_->verifier : scenario_->drafter;
        if (process->worker.num_free_pages() == plan.num_pages) continue;
        checker_.Fail("pages", absl::StrCat("all is quiet, and ", NameOf(*process), " has ",
                                            process->worker.num_free_pages(), " pages of ",
                                            plan.num_pages, " free"));
      }
    }
  }
  return {checker_.finding(), checker_.sights(), digest_, num_steps_};
}

bool World::IsQuiet() const {
  if (!healed_ || num_under_way_ > 0 || num_arrived_ < scenario_->clients.size() ||
      checker_.num_live_calls() > 0) {
    return false;
  }
  for (const Pod& pod : pods_) {
    for (const auto& process : pod.processes) {
      if (process->busy || !process->inbox.empty() || process->worker.num_open_slots() > 0) {
        return false;
      }
    }
  }
  return std::all_of(routers_.begin(), routers_.end(), [](const auto& router) {
    return !router->alive || (router->fleet->idle() && HeadsAreSettled(*router->fleet));
  });
}

void World::CheckHeads() {
  // Several routers may want different heads, and the verifier has those that were wanted last.
  if (routers_.size() != 1 || !routers_.front()->alive) return;
  const std::optional<std::string>& wanted = routers_.front()->roster.heads().wanted();
  if (!wanted.has_value() || IsBroken(*wanted)) return;
  for (uint32_t pod = 0; pod < pods_.size(); ++pod) {
    const std::string& has = process(pod, kVerifierPeer)->worker.heads().name();
    if (has == *wanted) continue;
    checker_.Fail("heads", absl::StrCat("all is quiet, and the verifier of pod ", pod,
                                        " has the heads \"", has, "\", want \"", *wanted, "\""));
  }
}

void World::Step() {
  if (events_.empty())
    return checker_.Fail("liveness", "nothing is to come: " + checker_.LiveCalls());
  std::pop_heap(events_.begin(), events_.end());
  const Event event = std::move(events_.back());
  events_.pop_back();
  now_ = event.at;
  checker_.SetTime(now_);
  Digest(static_cast<uint64_t>((now_ - kStartTime) * 1e9));
  event.run();
  if (++num_steps_ > kMostSteps) checker_.Fail("storm", absl::StrCat(num_steps_, " steps"));
  if (now_ > scenario_->heals_at + kPatienceSeconds) {
    const std::string calls = checker_.LiveCalls();
    if (!calls.empty() || num_arrived_ < scenario_->clients.size()) {
      checker_.Fail("liveness", "these never end: " + calls);
    } else {
      std::string open;
      for (const Pod& pod : pods_) {
        for (const auto& process : pod.processes) {
          absl::StrAppend(&open, open.empty() ? "" : ", ", process->worker.num_open_slots());
        }
      }
      checker_.Fail("slots",
                    absl::StrCat("no call is left, and ", open, " slots stay open at the workers"));
    }
  }
}

// ---------------------------------------------------------------- routers

void World::StartRouter() {
  auto router = std::make_unique<Router>();
  router->id = static_cast<RouterId>(routers_.size());
  router->falsifier = std::make_unique<Falsifier>(bug_, scenario_);
  EngineOptions options = router->falsifier->Options(scenario_->engine);
  options.workers.first_session_token = random_.Next();
  router->fleet = std::make_unique<Fleet>(options, &tokenizer_, NobodyObserves(), router->id);
  router->roster = DraftRoster(options.workers.num_drafters);
  routers_.push_back(std::move(router));
  Router& started = *routers_.back();
  Trace([&] { return absl::StrCat("router ", started.id, " starts"); });
  checker_.OnRouterStarted(started.id);
  checker_.OnRoster(started.id, started.roster);
  started.fleet->Start(now_);
  std::vector<PodSpec> specs;
  for (const Pod& pod : pods_) specs.push_back(pod.spec);
  started.fleet->SetPods(specs, now_);
  Settle(started);
}

void World::KillRouter(Router& router, double linger_seconds) {
  Trace([&] { return absl::StrCat("router ", router.id, " dies"); });
  router.alive = false;
  checker_.OnRouterDied(router.id);
  for (auto& [session, stream] : router.streams) {
    if (!stream->router_open) continue;
    stream->router_open = false;
    Deliver(now_ + linger_seconds + Delay(), [this, kept = stream] { EndAtWorker(kept); });
  }
}

void World::Settle(Router& router) {
  Fleet& fleet = *router.fleet;
  for (EngineCommands commands = fleet.TakeCommands(); !commands.empty();
       commands = fleet.TakeCommands()) {
    router.falsifier->ChangeCommands(fleet, &commands);
    checker_.OnCommands(router.id, fleet, commands);
    if (checker_.finding().has_value()) {
      Trace([&] { return "! " + checker_.finding()->what; });
    }
    for (EngineCommand& command : commands) Execute(router, command);
    fleet.OnCommandsSent(now_);
    if (auto repeated = router.falsifier->TakeRepeated()) {
      fleet.OnVerifierReply(repeated->first, repeated->second, now_);
    }
    if (checker_.finding().has_value()) return;
  }
  checker_.OnSettled(router.id, fleet);
  ScheduleTick(router);
}

void World::ScheduleTick(Router& router) {
  const double deadline = router.falsifier->ChangeDeadline(router.fleet->NextDeadline(), now_);
  if (std::isinf(deadline)) return;
  if (router.tick_at > now_ && router.tick_at <= deadline) return;  // an earlier tick will come
  router.tick_at = std::max(deadline, now_) + random_.Real(0.00001, 0.002);
  At(router.tick_at, [this, &router, number = ++router.tick_number] {
    if (!router.alive || number != router.tick_number) return;
    Trace([&] { return absl::StrCat("router ", router.id, ": tick"); });
    router.fleet->Tick(now_);
    Settle(router);
    if (!router.alive || checker_.finding().has_value()) return;
    const double next = router.falsifier->ChangeDeadline(router.fleet->NextDeadline(), now_);
    router.overdue_ticks = next <= now_ ? router.overdue_ticks + 1 : 0;
    if (router.overdue_ticks > kMostOverdueTicks) {
      checker_.Fail("storm", absl::StrCat("router ", router.id, ": the next deadline stays past"));
    }
  });
}

void World::Execute(Router& router, EngineCommand& command) {
  if (auto* open = std::get_if<OpenSession>(&command)) {
    OpenStream(router, open->peer, open->session);
  } else if (auto* close = std::get_if<CloseSession>(&command)) {
    const auto found = router.streams.find(close->session);
    if (found == router.streams.end()) return;
    Trace([&] {
      return absl::StrCat("router ", router.id, " closes session ", close->session, " with the ",
                          WorkerName(close->worker));
    });
    std::shared_ptr<Stream> stream = found->second;
    stream->router_open = false;
    stream->to_worker_at = std::max(now_ + Delay(), stream->to_worker_at);
    Deliver(stream->to_worker_at, [this, stream] { EndAtWorker(stream); });
  } else if (auto* draft = std::get_if<SendToDrafter>(&command)) {
    const auto found = router.streams.find(draft->session);
    if (found != router.streams.end()) SendToWorker(found->second, std::move(draft->command));
  } else if (auto* verifier = std::get_if<SendToVerifier>(&command)) {
    const auto found = router.streams.find(verifier->session);
    if (found != router.streams.end()) SendToWorker(found->second, std::move(verifier->command));
  } else if (auto* ping = std::get_if<SendPing>(&command)) {
    const auto found = router.streams.find(ping->session);
    if (found != router.streams.end()) Ping(found->second);
  } else if (auto* search = std::get_if<SearchCorpus>(&command)) {
    Search(router, std::move(*search));
  } else if (auto* write = std::get_if<WriteResponse>(&command)) {
    Trace([&] {
      return absl::StrCat("router ", router.id, " -> call ", write->call, ": ",
                          Describe(write->response));
    });
    for (int32_t id : write->response.token_ids()) Digest(static_cast<uint64_t>(id) + 1);
    Client& client = clients_[write->call];
    const ClientPlan& plan = scenario_->clients[client.plan];
    ++client.responses;
    if (plan.reads_responses.has_value() && client.responses > *plan.reads_responses) {
      Cancel(router, write->call);
    }
  } else if (auto* finish = std::get_if<FinishCall>(&command)) {
    Trace([&] {
      return absl::StrCat("router ", router.id, " ends call ", finish->call, ": ",
                          finish->status.ToString());
    });
  } else if (auto* line = std::get_if<LogLine>(&command)) {
    Trace([&] { return absl::StrCat("router ", router.id, " logs: ", line->text); });
  }
}

void World::Search(Router& router, SearchCorpus search) {
  Trace([&] {
    return absl::StrCat("router ", router.id, " searches its corpus for ", search.queries.size(),
                        " slots");
  });
  if (random_.Chance(0.1)) return;  // there is no answer
  // Some answers are in time, and some come rounds later.
  const double seconds = random_.Chance(0.5) ? random_.Real(0, 0.001) : random_.Real(0, 0.05);
  After(seconds, [this, &router, search = std::move(search)] {
    if (!router.alive) return;
    router.fleet->OnSearched(search, corpus_.Answer(search), now_);
    Settle(router);
  });
}

// ---------------------------------------------------------------- streams

void World::OpenStream(Router& router, PeerId peer_id, SessionId session) {
  auto stream = std::make_shared<Stream>();
  stream->id = ++last_stream_;
  stream->peer = peer_id;
  stream->router = router.id;
  stream->session = session;
  router.streams[session] = stream;
  streams_.push_back(stream);
  const auto place = std::find_if(
      pods_.begin(), pods_.end(),
      [spec = *router.fleet->PodOf(session)](const Pod& pod) { return pod.spec == spec; });
  const auto pod = static_cast<uint32_t>(place - pods_.begin());
  const std::shared_ptr<Process>& peer = process(pod, peer_id);
  Trace([&] {
    return absl::StrCat("router ", router.id, " opens session ", session, " with ",
                        NameOf(pod, peer_id));
  });
  if (peer == nullptr || !peer->alive) {
    stream->worker_open = false;
    Excuse(stream, Checker::kInterrupted);
    LoseStream(stream, Delay(), "connection refused");
    return;
  }
  stream->process = peer;
  if (peer->stopped || peer->stuck) Excuse(stream, Checker::kInterrupted);
  if (peer->misfit || peer->worker.spoils_ring()) Excuse(stream, Checker::kMisfit);
  if (scenario_->network.lossy && !healed_) Excuse(stream, Checker::kLossy);
}

void World::Excuse(const std::shared_ptr<Stream>& stream, Checker::Excuse excuse) {
  checker_.OnExcuse(stream->router, KindOf(stream->peer), stream->session, excuse);
}

std::vector<std::shared_ptr<World::Stream>> World::StreamsOf(
    const std::shared_ptr<Process>& process) {
  std::vector<std::shared_ptr<Stream>> streams;
  for (const auto& stream : streams_) {
    if (stream->process == process && stream->worker_open) streams.push_back(stream);
  }
  return streams;
}

void World::ExcuseAll(const std::shared_ptr<Process>& process, Checker::Excuse excuse) {
  for (const auto& stream : StreamsOf(process)) Excuse(stream, excuse);
}

void World::SendToWorker(const std::shared_ptr<Stream>& stream, WorkerCommand command) {
  Trace([&] {
    return absl::StrCat("router ", stream->router, " -> ", PeerName(stream->peer), ": ",
                        Describe(command));
  });
  if (stream->silent || stream->process == nullptr) return;
  const bool may_be_lost = scenario_->network.lossy && !healed_ && IsAboutSlots(command);
  const auto arrive = [this, stream, command = std::move(command)] {
    if (!stream->worker_open || !stream->process->alive) return;
    Enqueue(stream->process, [this, stream, command] {
      if (stream->worker_open) Compute(stream->process, stream, command);
    });
  };
  const NetworkPlan& network = scenario_->network;
  if (may_be_lost) {
    if (random_.Chance(network.drop_chance)) {
      Trace([] { return "  that is lost"; });
      LoseStream(stream, kTransportSeconds, "a message was lost");
      Deliver(now_ + kTransportSeconds, [this, stream] { EndAtWorker(stream); });
      return;
    }
    if (random_.Chance(network.repeat_chance)) Deliver(now_ + 10 * Delay(), arrive);
    if (random_.Chance(network.late_chance)) return Deliver(now_ + 10 * Delay(), arrive);
  }
  stream->to_worker_at = std::max(now_ + Delay(), stream->to_worker_at);
  Deliver(stream->to_worker_at, arrive);
}

void World::SendToRouter(const std::shared_ptr<Stream>& stream, WorkerReply reply) {
  if (stream->silent) return;
  if (spoil_next_ == KindOf(stream->peer) && stream->router_open) SpoilReply(stream, &reply);
  const bool may_be_lost = scenario_->network.lossy && !healed_ && IsAboutSlots(reply);
  const uint64_t id = IdOf(reply);
  const auto arrive = [this, stream, reply = std::move(reply)] { DeliverReply(stream, reply); };
  const NetworkPlan& network = scenario_->network;
  if (may_be_lost) {
    if (random_.Chance(network.drop_chance)) {
      Trace([&] { return absl::StrCat("reply ", id, " is lost"); });
      LoseStream(stream, kTransportSeconds, "a message was lost");
      Deliver(now_ + kTransportSeconds, [this, stream] { EndAtWorker(stream); });
      return;
    }
    if (random_.Chance(network.repeat_chance)) Deliver(now_ + 10 * Delay(), arrive);
    if (random_.Chance(network.late_chance)) return Deliver(now_ + 10 * Delay(), arrive);
  }
  stream->to_router_at = std::max(now_ + Delay(), stream->to_router_at);
  Deliver(stream->to_router_at, arrive);
}

void World::DeliverReply(const std::shared_ptr<Stream>& stream, WorkerReply reply) {
  Router& router = *routers_[stream->router];
  if (!router.alive) return;
  // A reply of a stream that was given up may still be on its way to the engine.
  if (!stream->router_open && random_.Chance(0.5)) return;
  Trace([&] {
    return absl::StrCat("router ", router.id, " <- ", PeerName(stream->peer), " (session ",
                        stream->session,
                        stream->router_open ? "): " : ", given up): ", Describe(reply));
  });
  Digest(IdOf(reply));
  if (stream->router_open) {
    checker_.OnReply(router.id, stream->session, reply);
  } else {
    checker_.See(Sight::kReplyToGivenUpSession);
  }
  const SessionId session = router.falsifier->ChangeReply(stream->session, &reply);
  if (auto* draft = std::get_if<v1::DraftReply>(&reply)) {
    router.fleet->OnDraftReply(session, *draft, now_);
  } else {
    router.fleet->OnVerifierReply(session, std::get<v1::VerifierReply>(reply), now_);
  }
  Settle(router);
}

void World::LoseStream(const std::shared_ptr<Stream>& stream, double after_seconds,
                       const char* why) {
  stream->to_router_at = std::max(now_ + after_seconds, stream->to_router_at);
  Deliver(stream->to_router_at, [this, stream, why] {
    Router& router = *routers_[stream->router];
    if (!router.alive || !stream->router_open) return;
    stream->router_open = false;
    Trace([&] {
      return absl::StrCat("router ", router.id, " loses session ", stream->session, " with the ",
                          PeerName(stream->peer), ": ", why);
    });
    checker_.OnSessionLost(router.id, KindOf(stream->peer), stream->session);
    router.fleet->OnSessionLost(KindOf(stream->peer), stream->session, why, now_);
    Settle(router);
  });
}

// Ends the stream at the worker. The worker sees the end when it next takes a job.
void World::EndAtWorker(const std::shared_ptr<Stream>& stream) {
  if (!stream->worker_open || stream->process == nullptr) return;
  stream->worker_open = false;
  if (!stream->process->alive) return;
  Enqueue(stream->process, [this, stream] {
    stream->process->worker.EndStream(stream->id);
    if (std::string error = stream->process->worker.CheckPages(); !error.empty()) {
      checker_.Fail("pages", error);
    }
  });
}

void World::Ping(const std::shared_ptr<Stream>& stream) {
  Deliver(now_ + Delay(), [this, stream] {
    const Process* peer = stream->process.get();
    if (stream->silent || peer == nullptr || !peer->alive || peer->stopped) return;
    v1::WatchPong pong;
    pong.set_progress(peer->progress);
    pong.set_computing(peer->busy || (peer->stuck && !peer->inbox.empty()));
    pong.set_num_open_slots(static_cast<uint32_t>(peer->worker.num_open_slots()));
    pong.set_num_free_pages(peer->worker.num_free_pages());
    pong.set_draining(peer->drains);
    Deliver(now_ + Delay(), [this, stream, pong] {
      Router& router = *routers_[stream->router];
      if (!router.alive) return;
      router.fleet->OnPong(KindOf(stream->peer), stream->session, pong, now_);
      Settle(router);
    });
  });
}

// ---------------------------------------------------------------- workers

void World::StartProcess(uint32_t pod, PeerId peer, bool other_vocabulary) {
  auto started = std::make_shared<Process>(
      pod, peer,
      FakeWorker(KindOf(peer), scenario_, &tokenizer_, &pods_[pod].rings, bug_, random_.Fork()));
  started->misfit = other_vocabulary;
  started->worker.set_other_vocabulary(other_vocabulary);
  started->worker.set_model(peer == kVerifierPeer ? "fake-target" : DraftModelName(peer));
  process(pod, peer) = started;
  Trace([&] { return absl::StrCat(NameOf(pod, peer), " starts"); });
}

void World::KillProcess(const std::shared_ptr<Process>& victim, bool silently) {
  if (victim == nullptr || !victim->alive) return;
  Trace([&] { return absl::StrCat(NameOf(*victim), " dies", silently ? " silently" : ""); });
  ExcuseAll(victim, Checker::kInterrupted);
  for (const auto& stream : StreamsOf(victim)) {
    stream->worker_open = false;
    stream->silent = silently;
    LoseStream(stream, silently ? random_.Real(0.1, 3) : Delay(), "the worker died");
  }
  victim->alive = false;
  victim->busy = false;
  victim->inbox.clear();
  victim->late.clear();
}

void World::Enqueue(const std::shared_ptr<Process>& worker, std::function<void()> job) {
  if (!worker->alive) return;  // the job would keep the process, and the process the job
  worker->inbox.push_back(std::move(job));
  Work(worker);
}

void World::Work(const std::shared_ptr<Process>& worker) {
  while (worker->alive && !worker->busy && !worker->stopped && !worker->stuck &&
         !worker->inbox.empty()) {
    const std::function<void()> job = std::move(worker->inbox.front());
    worker->inbox.pop_front();
    job();
  }
}

void World::Compute(const std::shared_ptr<Process>& worker, const std::shared_ptr<Stream>& stream,
                    const WorkerCommand& command) {
  FakeWorker::Outcome outcome = worker->worker.Handle(stream->id, command);
  checker_.OnExecuted(stream->id, KindOf(worker->peer), outcome.executions);
  if (outcome.is_wrong) Excuse(stream, Checker::kBadReply);
  if (outcome.refuses_model) Excuse(stream, Checker::kMisfit);
  for (int i = 0; i < outcome.num_replays; ++i) checker_.See(Sight::kCommandRepeated);
  checker_.OnComplaints(stream->router, KindOf(worker->peer), stream->session, outcome.complaints);
  if (std::string error = worker->worker.CheckPages(); !error.empty()) {
    checker_.Fail("pages", absl::StrCat(NameOf(*worker), ": ", error));
  }
  if (!outcome.wrong_features.empty()) {
    checker_.Fail("features", absl::StrCat(NameOf(*worker), ": ", outcome.wrong_features));
  }
  for (int i = 0; i < outcome.num_shared_features; ++i) checker_.See(Sight::kSharedFeatures);
  for (int i = 0; i < outcome.num_without_features; ++i) checker_.See(Sight::kWithoutFeatures);
  if (outcome.num_free_pages != worker->worker.num_free_pages()) {
    checker_.Fail("pages",
                  absl::StrCat(NameOf(*worker), " says that ", outcome.num_free_pages,
                               " pages are free, and ", worker->worker.num_free_pages(), " are"));
  }
  worker->busy = true;
  const double seconds = outcome.seconds;
  const uint64_t id = std::visit([](const auto& message) { return message.id(); }, command);
  const auto finish = [this, worker, stream, id, outcome = std::move(outcome)] {
    worker->busy = false;
    ++worker->progress;
    if (outcome.killed_by != nullptr) {
      checker_.OnPoisonDeath(stream->router, stream->session, id, *outcome.killed_by);
      KillProcess(worker, false);
      Deliver(now_ + random_.Real(0.01, 0.2), [this, worker] {
        if (process(worker->pod, worker->peer) == worker) {
          StartProcess(worker->pod, worker->peer, false);
        }
      });
      return;
    }
    for (const WorkerReply& reply : outcome.replies) SendToRouter(stream, reply);
    if (outcome.ends_stream) {
      LoseStream(stream, Delay(), "the worker ended the stream");
      EndAtWorker(stream);
    }
    Work(worker);
  };
  Deliver(now_ + seconds, [worker, finish] {
    if (!worker->alive) return;
    if (worker->stopped || worker->stuck) {
      worker->late.push_back(finish);
    } else {
      finish();
    }
  });
}

void World::SpoilReply(const std::shared_ptr<Stream>& stream, WorkerReply* reply) {
  const bool of_verifier = std::holds_alternative<v1::VerifierReply>(*reply);
  const int what = random_.Between(0, of_verifier ? 6 : 5);
  if (auto* draft = std::get_if<v1::DraftReply>(reply)) {
    if (!draft->has_propose() || draft->propose().results_size() == 0) return;
    v1::ProposeReply& proposed = *draft->mutable_propose();
    v1::ProposeResult& result = *proposed.mutable_results(0);
    if (what == 0) proposed.add_results();
    if (what == 1) proposed.clear_results();
    if (what == 2) result.mutable_state()->set_slot(result.state().slot() + 1);
    if (what == 3) result.add_draft_token_ids(scenario_->pair.vocabulary_size);
    if (what == 4) result.add_parents(7);
    if (what == 5) result.mutable_state()->set_cached_len(4000000000u);
  } else {
    auto& verifier = std::get<v1::VerifierReply>(*reply);
    if (!verifier.has_verify() || verifier.verify().results_size() == 0) return;
    v1::VerifyReply& verified = *verifier.mutable_verify();
    v1::VerifyResult& result = *verified.mutable_results(0);
    if (what == 0) verified.add_results();
    if (what == 1) verified.clear_results();
    if (what == 2) result.mutable_state()->set_slot(result.state().slot() + 1);
    if (what == 3) result.set_next_token_id(-1);
    if (what == 4) result.set_num_accepted(result.num_accepted() + 40);
    if (what == 5) result.mutable_state()->set_cached_len(result.state().cached_len() + 1);
    if (what == 6) result.add_path(result.path().empty() ? 7 : result.path(0));
  }
  Trace([&] { return absl::StrCat("the ", PeerName(stream->peer), " answers wrongly"); });
  Excuse(stream, Checker::kBadReply);
  spoil_next_.reset();
}

// ---------------------------------------------------------------- clients and faults

void World::Arrive(const ClientPlan& plan) {
  std::vector<Router*> choice;
  for (const auto& router : routers_) {
    if (router->alive && router->fleet->promised() != nullptr) choice.push_back(router.get());
  }
  // The adapter refuses requests until it has seen a verifier. The client tries again.
  if (choice.empty()) return After(0.02, [this, &plan] { Arrive(plan); });
  Router& router = *random_.Pick(choice);
  ++num_arrived_;
  const CallId call = ++last_call_;
  clients_[call] = Client{router.id, plan.index, 0};
  const v1::AttachReply& verifier = *router.fleet->promised();
  Trace([&] {
    return absl::StrCat("client ", plan.index, " calls router ", router.id, ": call ", call, ", ",
                        plan.request.request_id, ", prompt of ", plan.prompt_len(), ", up to ",
                        plan.request.max_tokens, " tokens",
                        plan.request.needs_draft_log_probs() ? ", sampled" : "");
  });
  checker_.OnRequest(router.id, call, plan,
                     uint64_t{verifier.num_pages()} * verifier.page_tokens());
  router.fleet->OnRequest(call, plan.request, now_);
  Settle(router);
  if (!plan.cancel_after_seconds.has_value()) return;
  After(*plan.cancel_after_seconds, [this, &router, call] {
    if (!router.alive || checker_.IsOver(call)) return;
    Cancel(router, call);
    Settle(router);
  });
}

void World::Cancel(Router& router, CallId call) {
  if (checker_.IsOver(call)) return;
  Trace([&] { return absl::StrCat("call ", call, " is canceled"); });
  checker_.OnCancel(call);
  if (!router.falsifier->ForgetsCancel()) router.fleet->OnCancel(call, now_);
}

void World::Apply(const Swap& swap) {
  using Kind = Swap::Kind;
  for (const auto& router : routers_) {
    if (!router->alive) continue;
    Fleet& fleet = *router->fleet;
    DraftRoster wanted = router->roster;
    absl::Status change;    // what the operator wants is allowed
    absl::Status accepted;  // what the router says
    switch (swap.kind) {
      case Kind::kLoad:
        change = wanted.Load(swap.model, swap.share).status();
        accepted = LoadDraftModel(swap.model, swap.share, now_, &fleet);
        break;
      case Kind::kPromote:
        change = wanted.Promote();
        accepted = bug_ == PlantedBug::kPromoteForgotten ? change : PromoteDraftModel(now_, &fleet);
        // The canary cannot draft at every pod.
        if (absl::IsFailedPrecondition(accepted)) change = accepted;
        break;
      case Kind::kRollBack:
        change = wanted.RollBack();
        accepted = bug_ == PlantedBug::kModelRollBackForgotten ? change
                                                               : RollBackDraftModels(now_, &fleet);
        break;
      case Kind::kUnload: {
        change = absl::NotFoundError("no such model");
        for (uint32_t number = 0; number < kMaxDraftModels; ++number) {
          const std::string& folder = wanted.place(number).folder;
          const std::string name = folder.empty() ? DraftModelName(kDrafterPeer + number) : folder;
          if (!wanted.has(number) || name != swap.model) continue;
          change = wanted.Unload(number);
          break;
        }
        const bool forgets = bug_ == PlantedBug::kUnloadForgotten;
        accepted = forgets ? change : UnloadDraftModel(swap.model, now_, &fleet);
        // The router does not know the name of a model that was never attached.
        if (absl::IsNotFound(accepted)) change = accepted;
        break;
      }
      case Kind::kSwapHeads:
        change = wanted.heads().Swap(swap.model, PresentHeads(fleet));
        accepted =
            bug_ == PlantedBug::kHeadsSwapForgotten ? change : SwapHeads(swap.model, now_, &fleet);
        break;
      case Kind::kRollBackHeads:
        change = wanted.heads().RollBack();
        accepted =
            bug_ == PlantedBug::kHeadsSwapForgotten ? change : RollBackHeads("", now_, &fleet);
        break;
    }
    Trace([&] {
      return absl::StrCat("router ", router->id, ": change ", static_cast<int>(swap.kind),
                          " of the drafters, ", swap.model, ": ", accepted.ToString());
    });
    if (change.code() != accepted.code()) {
      checker_.Fail("roster", absl::StrCat("the change of draft models is answered with ",
                                           accepted.ToString(), ", want ", change.ToString()));
    }
    if (!change.ok()) continue;
    router->roster = wanted;
    checker_.OnRoster(router->id, wanted);
    Settle(*router);
  }
}

void World::Inject(const Fault& fault) {
  if (!fault.of_all_drafters) return InjectAt(fault, AnyOf(fault.pod, fault.worker));
  const auto num_peers = static_cast<PeerId>(pods_[fault.pod].processes.size());
  for (PeerId peer = kDrafterPeer; peer < num_peers; ++peer) {
    InjectAt(fault, process(fault.pod, peer));
  }
}

void World::InjectAt(const Fault& fault, const std::shared_ptr<Process>& victim) {
  using Kind = Fault::Kind;
  const bool is_alive = victim != nullptr && victim->alive;
  switch (fault.kind) {
    case Kind::kKill:
    case Kind::kKillSilently:
      if (!is_alive) return;
      KillProcess(victim, fault.kind == Kind::kKillSilently);
      return After(fault.seconds, [this, victim] { Restart(victim, false); });
    case Kind::kOtherVocabulary: {
      if (!is_alive) return;
      KillProcess(victim, false);
      Restart(victim, true);
      const std::shared_ptr<Process> misfit = process(fault.pod, victim->peer);
      return After(fault.seconds, [this, misfit] {
        if (process(misfit->pod, misfit->peer) != misfit) return;
        KillProcess(misfit, false);
        StartProcess(misfit->pod, misfit->peer, false);
      });
    }
    case Kind::kStop:
    case Kind::kStuck: {
      if (!is_alive) return;
      const bool stops = fault.kind == Kind::kStop;
      Trace([&] { return absl::StrCat(NameOf(*victim), stops ? " stops" : " hangs"); });
      (stops ? victim->stopped : victim->stuck) = true;
      ExcuseAll(victim, Checker::kInterrupted);
      return After(fault.seconds, [this, victim] { Resume(victim); });
    }
    case Kind::kEndStreams:
      if (!is_alive) return;
      ExcuseAll(victim, Checker::kInterrupted);
      for (const auto& stream : StreamsOf(victim)) {
        LoseStream(stream, Delay(), "the stream ended");
        EndAtWorker(stream);
      }
      return;
    case Kind::kLoseRows:
      if (!is_alive) return;
      Trace([&] { return absl::StrCat(NameOf(*victim), " loses rows"); });
      ExcuseAll(victim, Checker::kRowsLost);
      return victim->worker.LoseRows();
    case Kind::kBadReply:
      spoil_next_ = fault.worker;
      return;
    case Kind::kSpoilRing:
      if (!is_alive) return;
      ExcuseAll(victim, Checker::kMisfit);
      victim->worker.set_spoils_ring(true);
      return After(fault.seconds, [victim] { victim->worker.set_spoils_ring(false); });
    case Kind::kToldToStop:
      if (!is_alive) return;
      return TellToStop(victim, fault.seconds);
    case Kind::kRouterDies:
    case Kind::kStopRouter:
    case Kind::kDrain:
      return InjectAtRouter(fault);
  }
}

void World::Restart(const std::shared_ptr<Process>& victim, bool other_vocabulary) {
  if (process(victim->pod, victim->peer) != victim) return;
  StartProcess(victim->pod, victim->peer, other_vocabulary);
}

void World::TellToStop(const std::shared_ptr<Process>& victim, double seconds) {
  Trace([&] { return absl::StrCat(NameOf(*victim), " is told to stop"); });
  victim->drains = true;
  After(seconds, [this, victim] {
    if (!victim->alive) return;
    KillProcess(victim, false);
    After(random_.Real(0.01, 0.3), [this, victim] { Restart(victim, false); });
  });
}

void World::InjectAtRouter(const Fault& fault) {
  std::vector<Router*> alive;
  for (const auto& router : routers_) {
    if (router->alive) alive.push_back(router.get());
  }
  Router& router = *random_.Pick(alive);
  if (fault.kind == Fault::Kind::kDrain) {
    Trace([&] { return absl::StrCat("router ", router.id, " drains"); });
    checker_.OnDrain(router.id);
    router.fleet->Drain();
    return Settle(router);
  }
  if (fault.kind == Fault::Kind::kStopRouter) {
    Trace([&] { return absl::StrCat("router ", router.id, " stops"); });
    checker_.OnStop(router.id);
    router.fleet->Stop(now_);
    Settle(router);
  }
  checker_.See(Sight::kRouterReplaced);
  KillRouter(router, fault.seconds);
  StartRouter();
}

void World::Resume(const std::shared_ptr<Process>& worker) {
  if (!worker->alive || (!worker->stopped && !worker->stuck)) return;
  Trace([&] { return absl::StrCat(NameOf(*worker), " goes on"); });
  worker->stopped = false;
  worker->stuck = false;
  const std::vector<std::function<void()>> late = std::exchange(worker->late, {});
  for (const auto& finish : late) finish();
  Work(worker);
}

void World::Heal() {
  Trace([] { return "all faults are over"; });
  healed_ = true;
  spoil_next_.reset();
  for (uint32_t pod = 0; pod < pods_.size(); ++pod) {
    // The verifier comes last.
    const auto num_peers = static_cast<PeerId>(pods_[pod].processes.size());
    for (PeerId next = 1; next <= num_peers; ++next) {
      const PeerId peer = next % num_peers;
      if (const auto misfit = process(pod, peer); misfit != nullptr && misfit->misfit) {
        KillProcess(misfit, false);
      }
      if (process(pod, peer) == nullptr || !process(pod, peer)->alive) {
        StartProcess(pod, peer, false);
      }
      Resume(process(pod, peer));
      process(pod, peer)->worker.set_spoils_ring(false);
    }
  }
}

RunResult RunSeed(uint64_t seed, PlantedBug bug, std::string* trace) {
  const Scenario scenario = MakeScenario(seed);
  World world(&scenario, bug, trace);
  return world.Run();
}

}  // namespace tandem::simulator
